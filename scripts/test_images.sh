#!/usr/bin/env bash
# The whole system out of its images, in containers: tests/images. Builds the images first; what has
# not changed is not built again. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/system.sh
source scripts/images/engine.sh
source scripts/images/wheels.sh

scripts/setup.sh test helm
need_engine
export DOCKER_HOST=${DOCKER_HOST:-}
[[ -n $DOCKER_HOST ]] || unset DOCKER_HOST
scripts/images.sh sirocco spark servers
SIROCCO_IMAGES_TAG=${TAG:-$(project_version)}
export SIROCCO_IMAGES_TAG
.venv/bin/python -m pytest -rfEs --durations=5 -s tests/images "$@"
