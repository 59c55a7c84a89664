# Checks of scripts that are tests: each prints a line and is counted in `passed` or `failed`. For scripts that source
# this file; $work is their folder for scratch files.
passed=0
failed=0
check() { # check WHAT COMMAND...: passes when the command ends with 0
  local what=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    echo "ok    $what"
    passed=$((passed + 1))
  else
    echo "FAIL  $what (exit status $?): $*"
    cat "$work/log"
    failed=$((failed + 1))
  fi
}
prints() { # prints TEXT COMMAND...: the command ends with 0 and its output holds TEXT
  local text=$1 output
  shift
  output=$("$@" 2>&1) || { echo "$output"; return 1; }
  [[ $output == *"$text"* ]] || { echo "$output"; echo "expected to find: $text"; return 1; }
}
refuses() { # refuses TEXT COMMAND...: the command fails and its output holds TEXT
  local text=$1 output
  shift
  ! output=$("$@" 2>&1) || { echo "$output"; echo "expected an error"; return 1; }
  [[ $output == *"$text"* ]] || { echo "$output"; echo "expected to find: $text"; return 1; }
}
