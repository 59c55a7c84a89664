#!/usr/bin/env bash
# The page of `watch` in a browser: what stands on it when it has looked, for runs with much, with little and with hostile
# names. Where there is no Chromium that is said, and nothing is tested (exit status 77).
#
#   tests/watch_page_test.sh BUILD
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
server=
stop() { [ -z "$server" ] || { kill "$server"; wait "$server"; } 2>/dev/null; }
trap 'stop; rm -rf "$work"' EXIT
source "$root/tests/support/checks.sh"
host=$build/bin/lora-host
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "skipped: no Chromium on this machine (apt-get install chromium)"
  exit 77
}
image=$(ls "$root"/docs/images/*.png | head -n 1)

# page NAME [HASH]: what is on the page of the run when it is not busy any more, into $work/page. A browser in virtual time
# may dump it before; then another, with more of that time and a profile of its own, looks again.
page() {
  local address= attempt profile
  stop
  rm -f "$work/served" # or the address of the server before is read, until this one has opened the file
  (cd "$work" && exec "$host" watch "$work/$1" --port 0) >"$work/served" 2>&1 &
  server=$!
  for ((i = 0; i < 600; ++i)); do
    address=$(grep -so 'http://127.0.0.1:[0-9]*/' "$work/served") && break
    sleep 0.1
  done
  [ -n "$address" ] || { echo "watch says no address in a minute:"; cat "$work/served"; return 1; }
  for ((attempt = 1; attempt <= 10; ++attempt)); do
    profile=$(mktemp -d "$work/browser.XXXXXX")
    # --no-sandbox: containers forbid what the sandbox is made of. The page is our own.
    timeout --kill-after=5 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$profile" \
      --virtual-time-budget=$((attempt * 5000)) --dump-dom "$address${2:-}" >"$work/page" 2>"$work/browser.log"
    rm -rf "$profile"
    grep -qF '<body aria-busy="false">' "$work/page" && return
  done
  cat "$work/browser.log" "$work/page"
  echo "the page of $1 was still busy, or not there, in each of 10 browsers: no <body aria-busy=\"false\">"
  return 1
}
has() { grep -qF -- "$1" "$work/page" || { cat "$work/page"; echo "expected to find: $1"; return 1; }; }
lacks() { ! grep -qF -- "$1" "$work/page" || { cat "$work/page"; echo "expected not to find: $1"; return 1; }; }
count() { [ "$(grep -oF -- "$1" "$work/page" | wc -l)" -eq "$2" ] || { cat "$work/page"; echo "expected $2 times: $1"; return 1; }; }

# --- a run with two prompts and samples of three steps, one of them of one prompt alone
mkdir -p "$work/dog/samples" "$work/photos"
printf 'step,loss,lr,grad_norm,validation_loss\n' >"$work/dog/metrics.csv"
for ((step = 1; step <= 200; ++step)); do echo "$step,0.$((900 - step)),0.0001,1.5,"; done >>"$work/dog/metrics.csv"
cat >"$work/dog/config.yaml" <<EOF
model: {name_or_path: m}
datasets: [{folder_path: photos}]
train: {steps: 400}
sample: {prompts: ["a photo of <b>sks</b> dog", "a lighthouse"]}
EOF
for name in 000000000_0 000000100_0 000000200_0 000000000_1 000000100_1; do cp "$image" "$work/dog/samples/$name.png"; done
for name in one two; do cp "$image" "$work/photos/$name.png"; done
echo "a dog on <i>grass</i>" >"$work/photos/one.txt"
echo "no image" >"$work/photos/three.png"

numbers() {
  page dog && has '<h1 id="name">dog</h1>' && has 'not training now' && has 'step 200 of 400' && has '<title>dog 200/400</title>' &&
    has '<dt>loss</dt><dd>0.7</dd>' && has '<dt>lr</dt><dd>1.00e-4</dd>' && lacks '<dt>validation loss</dt>' && count '<figure>' 3 &&
    has '<p id="problem" class="problem" hidden="">'
}
check "numbers and curves of what the metrics have" numbers
newest() {
  has 'src="samples/000000200_0.png"' && has 'src="samples/000000100_1.png"' && count '<article' 2 &&
    has 'a photo of &lt;b&gt;sks&lt;/b&gt; dog' && has '<output id="all-step">200</output>' && has '<p id="none" class="dim" hidden="">'
}
check "each prompt has its newest sample, and prompts are text" newest
pictures() {
  count 'src="dataset/' 2 && count 'class="broken"' 1 && has 'a dog on &lt;i&gt;grass&lt;/i&gt;' && has '<span id="pictures-count" class="dim">3</span>'
}
check "training pictures with captions, and what is none" pictures
moved() {
  page dog '#step=100' && has 'src="samples/000000100_0.png"' && has 'src="samples/000000100_1.png"' &&
    has '<output id="all-step">100</output>' && page dog '#step=150' && has 'src="samples/000000100_0.png"' &&
    page dog '#step=0x' && has 'src="samples/000000200_0.png"'
}
check "the address says at which step samples are shown" moved

# --- many samples, a long name, and nothing
long=$(printf 'a_long_name_%.0s' {1..15})
mkdir -p "$work/$long/samples"
cp "$work/dog/metrics.csv" "$work/$long/"
sed 's/prompts: .*/prompts: [a]}/' "$work/dog/config.yaml" >"$work/$long/config.yaml"
for ((step = 0; step < 1000; step += 10)); do ln "$work/dog/samples/000000000_0.png" "$(printf '%s/%s/samples/%09d_0.png' "$work" "$long" "$step")"; done
many() { page "$long" '#step=555' && has 'max="99"' && has 'samples/000000550_0.png' && count '<article' 1 && has "$long"; }
check "a hundred samples of one prompt" many
mkdir "$work/empty"
nothing() { page empty && has 'None yet' && has 'config.yaml' && has 'step 0' && count '<figure>' 0 && lacks 'does not answer'; }
check "a folder of a run that has nothing yet" nothing

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
