"""A page of Studio in a real browser, for tests and pictures."""

import time
import tomllib

READY = "document.documentElement?.dataset.ready === 'yes'"
SETTLED = "!document.querySelector('#figures[aria-busy]') && !document.querySelector('.htmx-request')"
NUMBER = "Number(document.querySelector('#figures dd').textContent.replace(/[± ,]/g, ''))"

FOCUS = """(() => {
    const it = document.activeElement;
    const label = it.ariaLabel || it.labels?.[0]?.textContent;
    return it === document.body ? '' : (label || it.textContent).trim();
})()"""


class Page:
    """The page of a Studio in the browser."""

    def __init__(self, browser, studio, **options):
        self.browser, self.studio = browser, studio
        browser.send("Page.navigate", url="about:blank")  # the page before is gone, with what it waits for
        browser.until("location.href === 'about:blank'")
        browser.events.clear()
        browser.resize(options.get("width", 1200), options.get("height", 900))
        browser.scheme("dark" if options.get("dark") else "light")
        browser.send("Page.navigate", url=studio.address)
        browser.until(f"location.pathname !== '/open' && {READY}")

    @property
    def spec(self):
        return tomllib.loads(self.studio.spec)

    def click(self, words, within="body"):
        """Click on the link or button with these words."""
        self.browser.run(
            f"[...document.querySelectorAll('{within} a, {within} button')]"
            f".find((e) => e.textContent.trim().startsWith({words!r}) && !e.disabled).click()"
        )

    def go(self, words, path):
        self.click(words)
        self.browser.until(f"location.pathname === '{path}' && {READY}")

    def until(self, words):
        self.browser.until(f"document.body?.innerText.includes({words!r}) && {SETTLED}")

    def settled(self):
        self.browser.until(SETTLED)
        return self.browser.run(NUMBER)

    def states(self, condition):
        """Wait until the file fulfils a condition."""
        deadline = time.monotonic() + 60
        while not condition(self.spec):
            assert time.monotonic() < deadline, self.spec
            time.sleep(0.05)
        self.browser.until(f"{READY} && {SETTLED}")

    def type(self, selector, text):
        """Give a field a text by its keys, and submit its form by the return key."""
        self.browser.run(
            f"(() => {{ const it = document.querySelector({selector!r}); it.focus(); it.select(); }})()"
        )
        self.browser.send("Input.insertText", text=text)

    def key(self, name, code, text=None):
        about = {"key": name, "code": name, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        self.browser.send("Input.dispatchKeyEvent", type="keyDown", **about)
        self.browser.send("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)

    def enter(self):
        self.key("Enter", 13, "\r")

    @property
    def focus(self):
        """What has the focus, in the words that a screen reader says first."""
        return self.browser.run(FOCUS)

    def tab(self, words, most=150):
        """Go to the link, button or field with these words by the tab key alone."""
        for _ in range(most):
            self.key("Tab", 9)
            if self.focus.startswith(words):
                return
        raise AssertionError(f"no way by the tab key to {words!r}")

    def write(self, text):
        """Type a text in place of what the field with the focus has."""
        self.browser.send(
            "Input.dispatchKeyEvent",
            type="keyDown",
            commands=["selectAll"],
            key="a",
            code="KeyA",
            modifiers=2,
        )
        self.browser.send("Input.insertText", text=text)

    def tree(self):
        """What a screen reader is given: the role, the name and the properties of all nodes, in order."""
        nodes = {node["nodeId"]: node for node in self.browser.send("Accessibility.getFullAXTree")["nodes"]}
        root = next(node for node in nodes.values() if "parentId" not in node)
        found, todo = [], [root]
        while todo:
            node = todo.pop()
            todo += [nodes[each] for each in reversed(node.get("childIds", ())) if each in nodes]
            if not node.get("ignored"):
                values = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
                found.append((node["role"]["value"], node.get("name", {}).get("value", ""), values))
        return found
