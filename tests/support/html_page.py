"""A page as a browser's parser sees it: its elements, its text, and what would be wrong with it."""

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "img", "br", "input", "hr", "base", "source"}
LEADS = {"src", "href", "action", "srcset", "data", "poster", "formaction", "background", "style"}


class HtmlPage(HTMLParser):
    """A parsed page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self.packed: list[str] = []
        self.style = ""
        self._inside = ""
        self._id = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        if tag in ("script", "style"):
            self._inside, self._id = tag, given.get("id", "")
            if given.get("type") == "application/gzip":
                self._inside = "packed"
                self.packed.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside or (tag == "script" and self._inside == "packed"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[self._id] = self.scripts.get(self._id, "") + data
        elif self._inside == "packed":
            self.packed[-1] += data
        elif self._inside == "style":
            self.style += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All text that is shown."""
        return "\n".join(self.texts)

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    @property
    def policy(self) -> str:
        """The Content-Security-Policy."""
        (found,) = (
            given["content"]
            for tag, given in self.elements
            if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy"
        )
        return found

    def details(self) -> Any:
        """The details of many nodes."""
        return [
            node
            for part in self.packed
            for node in json.loads(gzip.decompress(base64.b64decode(part, validate=True)))
        ]

    def faults(self) -> list[str]:
        """What is wrong with the page: requests, code in attributes, ids, headings."""
        found = [
            f"{tag} {name}={value}"
            for tag, given in self.elements
            for name, value in given.items()
            if (name in LEADS and not value.startswith("#")) or name.startswith("on")
        ]
        ids = [given["id"] for _, given in self.elements if "id" in given]
        found += [f"id {one} twice" for one in set(ids) if ids.count(one) > 1]
        for _, given in self.elements:
            for name in ("href", "for", "aria-labelledby"):
                if name in given and given[name].removeprefix("#") not in ids:
                    found.append(f"{name} {given[name]} leads nowhere")
        level = 0
        for tag, _ in self.elements:
            if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                found += [f"{tag} after h{level}"] if int(tag[1]) > level + 1 else []
                level = int(tag[1])
        if level == 0 or sum(tag == "h1" for tag, _ in self.elements) != 1:
            found.append("not one h1")
        if "@import" in self.style or "url(" in self.style:
            found.append("the style requests something")
        return found
