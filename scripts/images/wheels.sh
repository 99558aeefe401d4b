# What the images' builds copy in: wheels and jars, fetched outside where there is a network. Each
# directory below dist/ is made anew only when what it depends on has changed. Sourced.

python=.venv/bin/python
pip=("$python" -m pip --disable-pip-version-check --no-input)

project_version() { sed -nE 's/^version = "(.*)"/\1/p' pyproject.toml | head -1; }

# fresh DIRECTORY DIGEST: whether the directory was made from the same.
fresh() { [[ $(cat "$1.digest" 2>/dev/null) == "$2" ]] && [[ -d $1 ]]; }

third_party_wheels() {
  local target=dist/wheels/third-party kernels=dist/wheels/kernels wanted
  wanted=$({ "$python" --version; cat constraints.txt pyproject.toml sdk/pyproject.toml; } | sha256sum)
  fresh "$target" "$wanted" && [[ -d $kernels ]] && return
  say "wheels of what the services depend on"
  # The digest, too: what breaks off must not pass for the former one.
  rm -rf "$target" "$kernels" "$target.digest"
  "${pip[@]}" download -q -d "$kernels" --only-binary :all: -c constraints.txt pip numba >&2
  # The project's own are built by `own_wheels`, which has run before.
  # async-timeout is redis-py's wish for Python before 3.11.3, such as Debian's, and therefore not
  # among what the newer Python here asks for.
  local engine=(dist/wheels/own/sirocco-[0-9]*.whl)
  "${pip[@]}" wheel -q -w "$target" -c constraints.txt --find-links dist/wheels/own \
    dist/wheels/own/sirocco_client-*.whl "${engine[0]}[gateway,connect]" async-timeout==5.0.1 >&2
  rm -f "$target"/sirocco*.whl
  # What kernels need is installed before the rest.
  local wheel
  for wheel in "$kernels"/*.whl; do rm -f "$target/${wheel##*/}"; done
  echo "$wanted" >"$target.digest"
}

own_wheels() {
  local target=dist/wheels/own work
  say "wheels of the project"
  # Built in a copy: setuptools leaves its build directory in the tree, and reads it the next time.
  work=$(mktemp -d)
  rm -rf "$target"
  mkdir -p "$target"
  cp -R pyproject.toml README.md sirocco services loadgen "$work"
  cp -R sdk "$work/sdk"
  find "$work" -name '*.egg-info' -prune -exec rm -rf {} +
  local done=0
  # The same code makes the same wheel, so that the engine's cache of layers holds.
  SOURCE_DATE_EPOCH=315532800 "${pip[@]}" wheel -q --no-deps --no-build-isolation \
    -w "$target" "$work" "$work/sdk" >&2 || done=$?
  rm -rf "$work"
  return $done
}

spark_wheels() {
  local target=dist/spark-wheels wanted
  wanted=$({ "$python" --version; cat constraints.txt pyproject.toml; } | sha256sum)
  fresh "$target" "$wanted" && return
  say "wheels of Spark, 400 MB"
  rm -rf "$target" "$target.digest"
  "${pip[@]}" download -q -d "$target" --only-binary :all: -c constraints.txt pip >&2
  "$python" - "$target/requirements" <<'END'
import sys, tomllib
with open("pyproject.toml", "rb") as project:
    wanted = tomllib.load(project)["project"]["optional-dependencies"]["spark"]
with open(sys.argv[1], "w") as out:
    out.write("\n".join(wanted))
END
  # PySpark comes as sources; its wheel is made here.
  "${pip[@]}" wheel -q -w "$target" -c constraints.txt --no-build-isolation \
    -r "$target/requirements" >&2
  echo "$wanted" >"$target.digest"
}

# copy_of FROM TO: the files as they are now.
copy_of() {
  rm -rf "$2"
  mkdir -p "$(dirname "$2")"
  cp -R "$1" "$2"
}

connector_jars() {
  need mvn "Maven" maven
  "$python" - <<'END' >&2
from pathlib import Path
from sirocco.local.kafka import CACHE, fetch_jars
fetch_jars(
    Path("spark-jobs/kafka-connector-pom.xml"),
    CACHE / "spark-kafka-connector",
    "spark-sql-kafka-*.jar",
    Path("spark-jobs/kafka-connector-jars.sha256"),
)
END
  copy_of .cache/spark-kafka-connector dist/spark-jars
}

kafka_jars() {
  if ! "$python" scripts/kafka_jars.py --present; then
    need mvn "Maven" maven
    "$python" scripts/kafka_jars.py >&2
  fi
  # Those of this version: others may lie beside them.
  copy_of ".cache/kafka-$("$python" scripts/kafka_jars.py --version)" dist/kafka-jars
}
