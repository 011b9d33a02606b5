#!/usr/bin/env bash
# Writes autograder.zip, which Gradescope takes under "Configure Autograder": bash grading/deploy/gradescope/make_zip.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
course=$(cd "$here/../../.." && pwd)
out=${1:-autograder.zip}
out=${out%.zip}.zip
case $out in /*) ;; *) out=$PWD/$out ;; esac
if [ ! -d "$(dirname "$out")" ]; then
    echo "make_zip.sh: there is no folder $(dirname "$out")" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/setup.sh" "$here/run_autograder" "$work/"
mkdir "$work/course"
cd "$course"
cp -r grading instruments kernels widgets exercises solutions pyproject.toml constraints.txt README.md LICENSE "$work/course/"
find "$work" -name __pycache__ -prune -exec rm -rf {} +
cd "$work"
rm -f "$out"
python3 -c 'import shutil, sys; shutil.make_archive(sys.argv[1].removesuffix(".zip"), "zip", ".")' "$out"
echo "$out"
