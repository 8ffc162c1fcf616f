#!/bin/sh
# Runs a job file in any CI: the exit code is 0 only where the job completed (docs/ci.md).
#   sh examples/ci/run.sh JOB.yaml [FOLDER FOR OUTPUTS]
set -eu
job=${1:?a job file}
outputs=${2:-outputs}
tally job quote "$job"
# The channel ends with the job: no money waits for a next run that may not come.
tally job run "$job" --yes --keep 0 --outputs "$outputs"
tally spend --by day --days 7
