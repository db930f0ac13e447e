// What pages do beyond links and forms: they look again when the cluster has changed, say why jobs wait, carry out
// buttons without leaving the page, and paint the GPUs. Texts from the cluster are only ever set as text.
"use strict";
(() => {
  const base = document.body.dataset.base, word = document.body.dataset.word;
  const main = document.getElementById("main"), said = document.getElementById("said");
  const fresh = document.getElementById("fresh");
  const pace = 2000, slowPace = 15000; // ms between two looks, with and without the stream

  // morph makes one element like another, and leaves alone what is alike, so that focus, open details, texts that are
  // being written and the place on the page stay.
  const key = (n) => n.nodeType === 1 && n.dataset && n.dataset.key;
  function morph(now, next) {
    for (const a of [...now.attributes]) {
      if (!next.hasAttribute(a.name) && a.name !== "open" && !a.name.startsWith("data-js")) now.removeAttribute(a.name);
    }
    for (const a of next.attributes) {
      if (now.getAttribute(a.name) !== a.value) now.setAttribute(a.name, a.value);
    }
    const keyed = new Map();
    for (const c of now.children) if (key(c)) keyed.set(key(c), c);
    let at = now.firstChild;
    for (const want of [...next.childNodes]) {
      let have = at;
      const k = key(want);
      if (k) have = keyed.get(k) || null;
      else if (have && key(have)) have = null;
      if (have && have.nodeType === want.nodeType && have.nodeName === want.nodeName) {
        if (have !== at) now.insertBefore(have, at); else at = at.nextSibling;
        if (have.nodeType !== 1) {
          if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
        } else if (have.nodeName === "CANVAS" || (have.dataset.js === "own")) {
          continue;
        } else if (have === document.activeElement && /INPUT|TEXTAREA|SELECT/.test(have.nodeName)) {
          continue;
        } else if (have.hasAttribute("data-keep") && have.dataset.jsWas === want.textContent) {
          continue; // a better text has taken its place
        } else {
          delete have.dataset.jsWas;
          morph(have, want);
        }
      } else {
        now.insertBefore(document.importNode(want, true), at);
      }
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  }

  // look fetches this page anew.
  let looking = false, again = false, lookedAt = 0, wait = 0;
  async function look() {
    if (looking) { again = true; return; }
    looking = true; lookedAt = Date.now();
    try {
      const r = await fetch(location.href, { headers: { "X-Part": "1" } });
      if (r.status === 401) { location.href = base + "/login?again=1"; return; }
      if (!r.ok) { stale(); return; }
      const doc = new DOMParser().parseFromString(await r.text(), "text/html");
      const next = document.createElement("main");
      for (const a of main.attributes) next.setAttribute(a.name, a.value);
      next.append(...doc.body.childNodes);
      morph(main, next);
      lastGood = Date.now(); told();
      whys(); paintSoon();
    } catch { stale(); } finally {
      looking = false;
      if (again) { again = false; soon(); }
    }
  }
  function soon() {
    if (wait || document.hidden || !main.dataset.view) return;
    wait = setTimeout(() => { wait = 0; look(); }, Math.max(150, lookedAt + pace - Date.now()));
  }
  let lastGood = Date.now(), live = false;
  function told() { fresh.textContent = live ? "Live" : "Looked at " + new Date(lastGood).toTimeString().slice(0, 8); }
  function stale() {
    fresh.textContent = "No answer since " + new Date(lastGood).toTimeString().slice(0, 8) + "; this is what was known then";
  }

  // listen waits for news.
  const still = ["/submit", "/login", ""];
  function listen() {
    const s = new EventSource(base + "/live");
    s.addEventListener("changed", () => { if (live) soon(); else { live = true; told(); } });
    s.onerror = () => { live = false; };
    document.addEventListener("visibilitychange", () => { if (!document.hidden) soon(); });
    addEventListener("pagehide", () => s.close());
    setInterval(() => { if (!document.hidden && (!live || Date.now() - lastGood > 60000)) soon(); }, slowPace);
  }

  // whys says why jobs wait: asking costs the planner a pass, so it is asked seldom.
  let whyAt = 0, whyKnown = {};
  async function whys() {
    const cells = [...main.querySelectorAll("[data-why]")];
    if (!cells.length) return;
    const put = () => {
      for (const c of cells) {
        const x = whyKnown[c.dataset.why];
        if (!x || !x.text || c.dataset.jsWas) continue;
        c.dataset.jsWas = c.textContent;
        c.textContent = x.text;
        if (x.sooner && x.sooner.length) {
          const s = document.createElement("span");
          s.className = "sooner"; s.textContent = x.sooner[0];
          c.append(s);
        }
      }
    };
    put();
    if (Date.now() - whyAt < 10000) return;
    whyAt = Date.now();
    try {
      const r = await fetch(base + "/why");
      if (!r.ok) return;
      whyKnown = await r.json();
      for (const c of cells) if (c.dataset.jsWas) { c.textContent = c.dataset.jsWas; delete c.dataset.jsWas; }
      put();
    } catch { /* the short reason stays */ }
  }

  // say shows a sentence about what was done.
  function say(text, kind) {
    const p = document.createElement("p");
    p.className = "banner " + kind; p.textContent = text;
    said.replaceChildren(p);
  }
  document.addEventListener("submit", async (e) => {
    const f = e.target, b = e.submitter;
    if (!f.classList.contains("acts")) return;
    e.preventDefault();
    if (b && b.dataset.sure && !confirm(b.dataset.sure)) return;
    const data = new URLSearchParams(new FormData(f, b));
    if (b) b.disabled = true;
    try {
      const r = await fetch(f.action, { method: "POST", body: data, headers: { "X-Gbatch-Word": word } });
      const x = r.headers.get("Content-Type") === "application/json" ? await r.json() : {};
      if (x.said) say(x.said, "good");
      else say(x.wrong || "That did not work; reload the page and try again.", "bad");
    } catch { say("The controller does not answer.", "bad"); }
    if (b) b.disabled = false;
    await look();
  });

  // j and k move through the rows of lists, and g followed by a letter goes to a view.
  let g = false;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /INPUT|TEXTAREA|SELECT/.test(e.target.nodeName)) return;
    const views = { m: "/", g: "/gpus", q: "/queue", f: "/shares", t: "/timeline", o: "/operators", s: "/submit" };
    if (g && views[e.key]) { location.href = base + views[e.key]; g = false; return; }
    g = e.key === "g";
    if (e.key === "j" || e.key === "k") {
      const ids = [...main.querySelectorAll("a.id")], i = ids.indexOf(document.activeElement);
      const n = ids[i < 0 ? 0 : i + (e.key === "j" ? 1 : -1)];
      if (n) { n.focus(); n.scrollIntoView({ block: "nearest" }); }
    }
  });

  // The picture of GPUs.
  let map = null;
  function paintSoon() { if (window.gpuMap) { map = map || window.gpuMap(base); map.refresh(); } }

  if (main && !still.includes(main.dataset.view)) { listen(); whys(); }
  window.paintGPUs = paintSoon;
  paintSoon();
})();
