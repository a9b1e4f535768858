#!/usr/bin/env bash
# A real Slurm of one node on this machine, for a grid with --on slurm: arrays, a requeue in the middle of a run, a
# killed job, a cancelled command. Needs root and Debian's munge, slurmctld, slurmd, slurm-client. Takes a few minutes.
#
#     tests/cluster/slurm_here.sh [PYTHON]          prints its protocol; docs/cluster.md shows one
#
# It leaves nothing behind: own configuration, own folder, and only the daemons that it started are stopped.
set -euo pipefail
python=${1:-python}
here=$(mktemp -d /tmp/slurm_here.XXXXXX)
export SLURM_CONF=$here/slurm.conf OMP_NUM_THREADS=1
host=$(hostname -s)
cat > "$SLURM_CONF" <<CONF
ClusterName=here
SlurmctldHost=$host
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge/socket
CredType=cred/munge
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
KillWait=120
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
mkdir -p "$here"/{state,spool,munge}
chmod 755 "$here" "$here/munge"
dd if=/dev/urandom of="$here/munge.key" bs=1024 count=1 status=none
chmod 400 "$here/munge.key"

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
stop() {
    kill $(jobs -p) 2>/dev/null || true
    scancel --user "$(id -un)" 2>/dev/null || true
    for _ in $(seq 30); do [ -z "$(squeue --noheader 2>/dev/null)" ] && break; sleep 1; done
    for file in slurmd slurmctld munged; do
        [ -f "$here/$file.pid" ] && kill "$(cat "$here/$file.pid")" 2>/dev/null || true
    done
    sleep 2
    rm -rf "$here"
}
trap stop EXIT
until_true() { # seconds, words
    local end=$((SECONDS + $1)); shift
    until "$@"; do [ $SECONDS -lt $end ] || { say "waited in vain for: $*"; tail -n 20 "$here"/*.log; exit 1; }; sleep 1; done
}

munged --force --key-file="$here/munge.key" --socket="$here/munge/socket" --pid-file="$here/munged.pid" \
    --log-file="$here/munged.log" --seed-file="$here/munged.seed"
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF"
idle() { [ "$(sinfo --noheader --format %T 2>/dev/null)" = idle ]; }
until_true 60 idle
say "slurm $(sinfo --version | cut -d' ' -f2), node $(sinfo --noheader --format '%N %T %c CPUs')"

cat > "$here/grid.yaml" <<'GRID'
title: A grid on Slurm
data: digits
fixed: {backbone: resnet_mini, batch: 64, subset: 256, epochs: 40}
columns: {tau_beta: [0.1, 1]}
seeds: 2
GRID
grid() { exec "$python" -m dualtemp grid "$here/grid.yaml" --results "$1" --on slurm --jobs 2 --slurm time=60; }
running() { squeue --noheader --array --states RUNNING --format %i; }
begun() { ls "$1"/runs/*/metrics.jsonl >/dev/null 2>&1; }
finished() { ls "$1" 2>/dev/null | grep -c -- '-s[0-9]*\.json' || true; }

say "1. a grid of four runs as one array, two at a time; the first is requeued once it has an epoch behind it"
grid "$here/requeued" > "$here/requeued.log" 2>&1 &
command=$!
until_true 600 begun "$here/requeued"
squeue --noheader --array --format '%i %T' | sed 's/^/          /'
first=$(running | head -n 1)
say "scontrol requeue $first"
scontrol requeue "$first"
wait $command
sed 's/^/          /' "$here/requeued.log"
say "requeued runs that saved before they ended: $(grep -l 'stopping after this step' "$here"/requeued/jobs/*.err | wc -l)"
[ "$(finished "$here/requeued")" = 4 ]

say "2. the same grid; the process of one run is killed, and the command is cancelled and repeated"
grid "$here/killed" > "$here/killed.log" 2>&1 &
command=$!
until_true 600 begun "$here/killed"
victim=$(running | head -n 1)
say "scancel --signal=KILL $victim"
scancel --signal=KILL "$victim"
sleep 5
say "kill -TERM the command; its jobs save and end"
kill -TERM $command
wait $command || say "it ended with code $?"
empty() { [ -z "$(squeue --noheader)" ]; }
until_true 180 empty
say "results so far: $(finished "$here/killed"); the same command again:"
(grid "$here/killed") > "$here/again.log" 2>&1
sed 's/^/          /' "$here/again.log"
[ "$(finished "$here/killed")" = 4 ]

say "3. both results folders hold the same numbers, bit for bit"
"$python" - "$here/requeued" "$here/killed" <<'SAME'
import json, sys
from pathlib import Path
first, second = ({p.name: json.loads(p.read_text()) for p in Path(folder).glob("*-s*.json")} for folder in sys.argv[1:])
assert set(first) == set(second) and len(first) == 4
for name in first:
    a, b = first[name], second[name]
    assert a["losses"] == b["losses"] and a["metrics"]["probe_top1"] == b["metrics"]["probe_top1"], name
print("          4 of 4 the same")
SAME
say "4. one run under torchrun, two processes; SIGUSR1, as Slurm sends it before the time is over, saves and requeues"
cat > "$here/job.sh" <<JOB
#!/bin/bash
#SBATCH --requeue --open-mode=append --ntasks=1 --cpus-per-task=2 --output=$here/job.log
export TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGUSR1
srun $python -m torch.distributed.run --nproc-per-node 2 --rdzv-backend c10d --rdzv-id \$SLURM_JOB_ID \\
    --rdzv-endpoint 127.0.0.1:29512 -m dualtemp train --data digits --backbone resnet_mini --batch 64 --subset 256 \\
    --epochs 40 --out $here/runs/large --no-page
JOB
job=$(sbatch --parsable "$here/job.sh")
saved() { ls "$here"/runs/large/checkpoints/step-*.ckpt >/dev/null 2>&1; }
until_true 900 saved
say "scancel --signal=USR1 $job"
scancel --signal=USR1 "$job"
until_true 900 empty
grep "dualtemp: stop" "$here/job.log" | sed 's/^/          /'
restarts=$(scontrol show job "$job" | grep -o 'Restarts=[0-9]*')
say "$restarts; epochs in metrics.jsonl: $(wc -l < "$here/runs/large/metrics.jsonl")"
[ "$(wc -l < "$here/runs/large/metrics.jsonl")" = 40 ]
say "done"
