// Draws each panel of a page when it comes into view. Library and data are scripts, each loaded once, since a browser
// that opened the book as files, without a server, may load nothing else.
const folder = document.currentScript.src.replace(/[^/]*$/, "");
const loading = {};
window.panelData = {};

function load(address) {
  return (loading[address] ??= new Promise((loaded, failed) => {
    document.head.append(Object.assign(document.createElement("script"), { src: address, onload: loaded, onerror: failed }));
  }));
}

async function draw(element) {
  await Promise.all([load(element.dataset.panel), load(folder + "vega.js")]);
  const name = element.dataset.panel.match(/([^/]*)\.js$/)[1];
  await window.vegaEmbed(element, window.panelData[name], { actions: false, renderer: "canvas" });
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
