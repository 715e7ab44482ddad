#!/usr/bin/env python3
"""fetch_sdist.py NAME VERSION FOLDER - the source archive of a package, without building anything.

pip download --no-binary builds a package (and what builds it) to read its metadata; here only the
file is wanted. The index is pip's own (its configuration, else pypi.org), and its checksum is kept.
"""
import hashlib
import html.parser
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request

JSON_TYPE = "application/vnd.pypi.simple.v1+json"


def pip_setting(name):
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", f"global.{name}"],
                          capture_output=True, text=True, check=False)
    from_pip = done.stdout.strip().strip("'\"") if done.returncode == 0 else ""
    return os.environ.get("PIP_" + name.upper().replace("-", "_")) or from_pip


class Links(html.parser.HTMLParser):
    """Of an index that speaks no JSON: href#sha256=... of every file."""

    def __init__(self):
        super().__init__()
        self.files = []

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href", "") if tag == "a" else ""
        url, _, fragment = (href or "").partition("#")
        name = urllib.parse.unquote(url.rsplit("/", 1)[-1])
        digest = fragment.partition("sha256=")[2]
        self.files.append({"filename": name, "url": url, "hashes": {"sha256": digest}})


def main():
    name, version, folder = sys.argv[1:4]
    index = pip_setting("index-url") or "https://pypi.org/simple"
    context = ssl.create_default_context(cafile=pip_setting("cert") or None)
    page_url = f"{index.rstrip('/')}/{re.sub('[-_.]+', '-', name).lower()}/"
    request = urllib.request.Request(page_url, headers={"Accept": f"{JSON_TYPE}, text/html;q=0.5"})
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        body, kind = answer.read().decode(), answer.headers.get_content_type()
    if kind == JSON_TYPE:
        files = json.loads(body)["files"]
    else:
        links = Links()
        links.feed(body)
        files = links.files
    wanted = f"{re.sub('[-_.]+', '_', name).lower()}-{version}.tar.gz"
    found = next((f for f in files if f["filename"].lower().replace("-", "_") ==
                  wanted.replace("-", "_")), None)
    if found is None:
        sys.exit(f"{page_url} has no {wanted}")
    path = os.path.join(folder, wanted)
    digest = hashlib.sha256()
    with urllib.request.urlopen(urllib.parse.urljoin(page_url, found["url"]), context=context,
                                timeout=60) as answer, open(path + ".part", "wb") as out:
        while piece := answer.read(1 << 20):
            digest.update(piece)
            out.write(piece)
    expected = found["hashes"].get("sha256", "")
    if expected and digest.hexdigest() != expected:
        os.unlink(path + ".part")
        sys.exit(f"{wanted} has SHA-256 {digest.hexdigest()}, the index says {expected}")
    os.rename(path + ".part", path)
    print(path)


if __name__ == "__main__":
    main()
