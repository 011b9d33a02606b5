// Draws each panel of a page when it comes into view. The library is in one file of the book's own, loaded once.
let library;

async function draw(element) {
  const address = new URL(element.dataset.panel, document.baseURI);
  const [specification] = await Promise.all([
    fetch(address).then((answer) => answer.json()),
    (library ??= import(new URL("../vega.js", address))),
  ]);
  await window.vegaEmbed(element, specification, { actions: false, renderer: "canvas" });
  element.dataset.drawn = "yes";
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      watcher.unobserve(entry.target);
      draw(entry.target);
    }
  }
}, { rootMargin: "300px" });
for (const element of document.querySelectorAll(".panel")) watcher.observe(element);
