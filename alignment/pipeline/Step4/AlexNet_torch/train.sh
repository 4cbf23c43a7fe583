#!/bin/sh
# Record five training iterations of AlexNet's torch side on fake data; further options go to the script.
exec "${TIPCHAIN_PYTHON:-python}" "$(dirname "$0")/../../../step4/torch_train.py" --case configs/alexnet.yaml "$@"
