# What the images' builds copy in: wheels and jars, fetched outside where there is a network. Each
# directory below dist/ is made anew only when what it depends on has changed. Sourced.

python=.venv/bin/python
pip=("$python" -m pip --disable-pip-version-check --no-input)

project_version() { sed -nE 's/^version = "(.*)"/\1/p' pyproject.toml | head -1; }

# fresh DIRECTORY DIGEST: whether the directory was made from the same.
fresh() { [[ $(cat "$1.digest" 2>/dev/null) == "$2" ]] && [[ -d $1 ]]; }

# locked DIRECTORY LOCK: wheels of all that a lock lists, each checked by its SHA-256.
locked() {
  "${pip[@]}" wheel -q -w "$1" --require-hashes --no-deps --no-build-isolation -r "locks/$2.txt" >&2
}

third_party_wheels() {
  local target=dist/wheels/third-party kernels=dist/wheels/kernels wanted
  wanted=$({ "$python" --version; cat locks/images.txt; } | sha256sum)
  fresh "$target" "$wanted" && [[ -d $kernels ]] && return
  say "wheels of what the services depend on"
  # The digest, too: what breaks off must not pass for the former one.
  rm -rf "$target" "$kernels" "$target.digest"
  locked "$target" images
  # What kernels need is installed before the rest.
  mkdir -p "$kernels"
  mv "$target"/{pip,numba,llvmlite,numpy}-*.whl "$kernels"
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
  wanted=$({ "$python" --version; cat locks/images-spark.txt; } | sha256sum)
  fresh "$target" "$wanted" && return
  say "wheels of Spark, 400 MB"
  rm -rf "$target" "$target.digest"
  # PySpark comes as sources; its wheel is made here.
  locked "$target" images-spark
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
