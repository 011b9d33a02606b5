#!/usr/bin/env bash
# Gradescope runs this once, when the image is built. The course lies in /autograder/source/course.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 python3-venv python3-dev gcc
python3 -m venv /autograder/venv
cd /autograder/source/course
/autograder/venv/bin/python -m pip install -q --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt -e .
