#!/usr/bin/env bash
# A real Slurm of one node on this machine, for grids and for embed with --on slurm: arrays, a requeue in the middle of a
# run, killed jobs, cancelled commands. Needs root and Debian's munge, slurmctld, slurmd, slurm-client. Takes a few minutes.
#
#     tests/cluster/slurm_here.sh [PYTHON [grids | embed]]          prints its protocol; docs/cluster.md shows one
#
# It leaves nothing behind: own configuration, own folder, and only the daemons that it started are stopped.
set -euo pipefail
python=${1:-python}
only=${2:-}
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
    until "$@"; do [ $SECONDS -lt $end ] || { say "waited in vain for: $*"; tail -n 20 "$here"/*.log; exit 1; }; sleep "${pause:-1}"; done
}

munged --force --key-file="$here/munge.key" --socket="$here/munge/socket" --pid-file="$here/munged.pid" \
    --log-file="$here/munged.log" --seed-file="$here/munged.seed"
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF"
idle() { [ "$(sinfo --noheader --format %T 2>/dev/null)" = idle ]; }
until_true 60 idle
say "slurm $(sinfo --version | cut -d' ' -f2), node $(sinfo --noheader --format '%N %T %c CPUs')"

running() { squeue --noheader --array --states RUNNING --format %i; }
empty() { [ -z "$(squeue --noheader)" ]; }

carry_grids() {
cat > "$here/grid.yaml" <<'GRID'
title: A grid on Slurm
data: digits
fixed: {backbone: resnet_mini, batch: 64, subset: 256, epochs: 40}
columns: {tau_beta: [0.1, 1]}
seeds: 2
GRID
grid() { exec "$python" -m dualtemp grid "$here/grid.yaml" --results "$1" --on slurm --jobs 2 --slurm time=60; }
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
export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGUSR1
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
}

embed_parts() {
say "5. embed --on slurm: 480 images in six parts, two at a time; one process makes the same rows first"
PYTHONPATH="$(dirname "$0")/../support:${PYTHONPATH:-}" "$python" -c "
import sys; from pathlib import Path; from drawn_photos import draw_photos
draw_photos(Path(sys.argv[1]), 480)[7].write_bytes(b'broken')" "$here/photos"
"$python" -m dualtemp train --data "$here/photos" --subset 64 --batch 32 --epochs 1 --image-size 64 --backbone resnet18 \
    --init none --out "$here/runs/encoder" --no-page --workers 0 > "$here/encoder.log" 2>&1
embed() { exec "$python" -m dualtemp embed "$here/runs/encoder" --data "$here/photos" --batch 8 --workers 0 --device cpu "$@"; }
on_slurm() { embed --out "$1" --parts 6 --on slurm --jobs 2 --slurm time=60; }
(embed --out "$here/one.parquet") | sed 's/^/          /'
halfway() { # the job of a part that has rows, and is not finished, is `victim`: element I of the array has part I
    for file in "$1"/.part-*.work; do
        [ -f "$file" ] && [ "$(stat -c %s "$file")" -gt 8000 ] || continue
        part=$((10#$(basename "$file" | cut -c 7-11)))
        victim=$(running | grep "_$part\$") && return
    done
    return 1
}
(on_slurm "$here/parts") > "$here/parts.log" 2>&1 &
command=$!
pause=0.1 until_true 600 halfway "$here/parts"
say "scancel --signal=KILL $victim, which has rows of its part"
scancel --signal=KILL "$victim"
wait $command
sed 's/^/          /' "$here/parts.log"

say "6. the same into another folder; a job is cancelled, then the command is stopped, and repeated"
(on_slurm "$here/stopped") > "$here/stopped.log" 2>&1 &
command=$!
pause=0.1 until_true 600 halfway "$here/stopped"
say "scancel $victim"
scancel "$victim"
sleep 5
say "kill -TERM the command"
kill -TERM $command
wait $command || say "it ended with code $?"
until_true 180 empty
say "finished parts: $(ls "$here/stopped" | grep -c parquet || true), begun: $(ls -A "$here/stopped" | grep -c work || true); the same command again:"
(on_slurm "$here/stopped") > "$here/again.log" 2>&1
sed 's/^/          /' "$here/again.log"

say "7. both folders hold the rows of one process, bit for bit"
"$python" - "$here/one.parquet" "$here/parts" "$here/stopped" <<'SAME'
import sys
import pyarrow.parquet as pq
one, *others = (pq.read_table(path) for path in sys.argv[1:])
assert one.num_rows == 479
for other in others:
    for column in ("name", "features"):
        assert one[column].combine_chunks().equals(other[column].combine_chunks()), column
print("          2 of 2 folders the same, 479 rows each")
SAME
}

[ "$only" = embed ] || carry_grids
[ "$only" = grids ] || embed_parts
say "done"
