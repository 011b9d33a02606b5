#!/usr/bin/env bash
# Gradescope runs this once, when the image is built. The course lies in /autograder/source/course.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
python=python3
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || python=python3.11  # Ubuntu 22.04 has both
apt-get install -y -qq --no-install-recommends "$python" "$python-venv" "$python-dev" gcc
"$python" -m venv /autograder/venv
cd /autograder/source/course
/autograder/venv/bin/python -m pip install -q --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt -e .
