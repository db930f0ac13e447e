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
      if (r.status === 401) { location.href = base + "/login?again=1&to=" + encodeURIComponent((location.pathname + location.search).slice(base.length)); return; }
      if (!r.ok) { stale(); return; }
      const doc = new DOMParser().parseFromString(await r.text(), "text/html");
      const next = document.createElement("main");
      for (const a of main.attributes) next.setAttribute(a.name, a.value);
      next.append(...doc.body.childNodes);
      morph(main, next);
      lastGood = Date.now(); told();
      whys(); paintSoon(); zones();
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

  // The picture of GPUs: racks of nodes, a cell for each GPU. What a job holds and does not use stands out.
  let cells = [], at = -1, painted = 0;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Hues of jobs and users: from green over blue to violet. Red and orange say that something is out or idle.
  const hue = (text) => { let h = 0; for (const c of text) h = (h * 31 + c.charCodeAt(0)) >>> 0; return 70 + h * 137.5 % 240; };
  async function paintSoon(now) {
    const box = document.getElementById("gpumap");
    if (!box || (!now && Date.now() - painted < 4000)) return;
    painted = Date.now();
    try {
      const r = await fetch(base + "/gpus.json?by=" + encodeURIComponent(box.dataset.by));
      if (r.ok) { map = await r.json(); paint(); }
    } catch { /* the picture of before stays */ }
  }
  let map = null;
  function paint() {
    const box = document.getElementById("gpumap"), cv = box && box.querySelector("canvas");
    if (!cv || !map) return;
    for (const own of box.querySelectorAll("[hidden]")) own.hidden = false; // of a cluster that had no GPUs
    const by = box.dataset.by, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const count = map.racks.reduce((n, r) => n + r.nodes.length, 0);
    const cell = count > 1200 ? 5 : count > 400 ? 7 : count > 100 ? 10 : count > 24 ? 14 : 18;
    const gap = cell > 8 ? 2 : 1, label = cell > 8, width = cv.clientWidth, ratio = devicePixelRatio || 1;
    const idle = map.idle, inks = { stuck: dark ? "#46505c" : "#c3cad3", free: css("--bar-all"), bad: css("--bad"), low: css("--low"), line: css("--line"), text: css("--faint"), kept: css("--ends"), card: css("--card"), ink: css("--ink") };
    const most = Math.max(1, ...map.racks.flatMap((r) => r.nodes.map((n) => n.g.length)));
    const cols = Math.min(8, most), rows = Math.ceil(most / cols);
    const step = cell + gap, nw = cols * step + (label ? 14 : 5), nh = rows * step + (label ? 20 : 5);
    const across = Math.max(1, Math.floor(width / nw));
    const place = (draw) => {
      let y = 0;
      cells = [];
      for (const rack of map.racks) {
        if (rack.switch) { if (draw) { draw.fillStyle = inks.text; draw.fillText(rack.switch, 0, y + 12); } y += 20; }
        rack.nodes.forEach((n, i) => {
          const x0 = (i % across) * nw, y0 = y + Math.floor(i / across) * nh + (label ? 16 : 0);
          if (draw && label) {
            draw.fillStyle = inks.text;
            draw.fillText(n.n.length * 6.4 > nw ? n.n.slice(-Math.floor(nw / 6.8)) : n.n, x0, y0 - 4);
          }
          n.g.forEach((g, k) => {
            const x = x0 + (k % cols) * step, yy = y0 + Math.floor(k / cols) * step;
            cells.push({ x, y: yy, node: n, k, g });
            if (draw) {
              draw.fillStyle = colour(g, n, by, dark, inks);
              draw.fillRect(x, yy, cell, cell);
              if (g[0] > 3) hatch(draw, x, yy, cell, inks.card);
              if (g[0] === 1 && g[1] >= 0 && g[1] < idle && by !== "use") { draw.fillStyle = inks.low; draw.fillRect(x, yy + cell - Math.max(2, cell / 5), cell, Math.max(2, cell / 5)); }
            }
          });
        });
        y += Math.ceil(rack.nodes.length / across) * nh + 6;
      }
      return y;
    };
    const height = Math.max(20, place(null));
    cv.width = Math.round(width * ratio); cv.height = Math.round(height * ratio);
    cv.style.height = height + "px";
    const draw = cv.getContext("2d");
    draw.scale(ratio, ratio); draw.font = "11px system-ui, sans-serif";
    place(draw);
    cv.dataset.cells = cells.length;
    if (at >= 0 && at < cells.length) {
      draw.strokeStyle = inks.ink; draw.lineWidth = 2; draw.strokeRect(cells[at].x - 1, cells[at].y - 1, cell + 2, cell + 2);
    }
    legend(box, by, dark, inks);
    cv.onmousemove = (e) => {
      const i = cells.findIndex((c) => e.offsetX >= c.x - 1 && e.offsetX < c.x + step && e.offsetY >= c.y - 1 && e.offsetY < c.y + step);
      if (i >= 0 && i !== at) { at = i; point(box); }
    };
    cv.onclick = () => { const c = cells[at]; if (c) location.href = base + (c.g[2] >= 0 ? "/job/" + encodeURIComponent(map.jobs[c.g[2]].id) : "/node/" + encodeURIComponent(c.node.n)); };
    cv.onkeydown = (e) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cols, ArrowUp: -cols }[e.key];
      if (e.key === "Enter") cv.onclick();
      if (!move) return;
      e.preventDefault();
      at = Math.max(0, Math.min(cells.length - 1, at + move)); paint(); point(box);
    };
  }
  // hatch draws lines across what is out of service, so that not only its colour says so.
  function hatch(draw, x, y, cell, ink) {
    draw.save();
    draw.beginPath(); draw.rect(x, y, cell, cell); draw.clip();
    draw.beginPath(); draw.strokeStyle = ink; draw.lineWidth = Math.max(1, cell / 9);
    for (let d = -cell; d < cell; d += Math.max(3, cell / 3)) { draw.moveTo(x + d, y + cell); draw.lineTo(x + d + cell, y); }
    draw.stroke();
    draw.restore();
  }
  function colour(g, n, by, dark, inks) {
    const [state, use, job] = g;
    if (by === "fit") {
      if (state === 8) return inks.stuck;
      if (state !== 0) return inks.free;
      const free = n.g.filter((x) => x[0] === 0).length / n.g.length;
      return "hsl(152 " + (30 + 30 * free) + "% " + (dark ? 22 + 36 * free : 80 - 42 * free) + "%)";
    }
    if (state === 8) return inks.stuck;
    if (state > 3) return inks.bad;
    if (state > 1) return inks.kept;
    if (by === "health") return dark ? "hsl(152 40% 38%)" : "hsl(152 42% 48%)";
    if (state === 0) return inks.free;
    if (by === "job" || by === "user") {
      const who = job < 0 ? "" : by === "job" ? map.jobs[job].id : map.jobs[job].user || "?";
      return "hsl(" + hue(who) + " 48% " + (dark ? 56 : 52) + "%)";
    }
    if (use < 0) return dark ? "#46586c" : "#a9bacb";
    if (use < map.idle) return inks.low;
    return "hsl(211 " + (35 + use * 0.3) + "% " + (dark ? 28 + use * 0.38 : 80 - use * 0.42) + "%)";
  }
  function legend(box, by, dark, inks) {
    const words = { use: [["free", [0, 0, -1]], ["idle, under " + map.idle + "\u00a0%", [1, 0, 0]], ["10\u00a0%", [1, 10, 0]], ["50\u00a0%", [1, 50, 0]], ["100\u00a0%", [1, 100, 0]], ["out", [6, 0, -1]]],
      health: [["in service", [0, 0, -1]], ["reserved", [2, 0, -1]], ["out", [6, 0, -1]]], job: [["free", [0, 0, -1]], ["out", [6, 0, -1]]] };
    const el = box.querySelector(".legend"), list = [...(words[by] || words.job)];
    if (map.racks.some((r) => r.nodes.some((n) => n.g.some((g) => g[0] === 8)))) list.push(["no CPU or memory left", [8, 0, -1]]);
    if (by === "job" || by === "user") list.unshift(...holders(by));
    el.replaceChildren(...(by === "fit" ? [] : list).map(([text, g]) => {
      const s = document.createElement("span"), i = document.createElement("i");
      const held = g[0] === 1 && (by === "job" || by === "user"); // by whom
      i.style.backgroundColor = colour(g, { g: [g] }, held ? by : by === "job" || by === "user" ? "use" : by, dark, inks);
      if (g[0] > 3) i.className = "out";
      s.append(i, text);
      return s;
    }));
    if (by === "fit") el.textContent = "The " + (dark ? "brighter" : "darker") + ", the more of the node is free";
  }
  // holders names those who hold the most GPUs, with a cell of each.
  function holders(by) {
    const of = new Map();
    for (const r of map.racks) for (const n of r.nodes) for (const g of n.g) {
      if (g[0] !== 1) continue;
      const job = g[2] >= 0 ? map.jobs[g[2]] : null, who = !job ? "" : by === "job" ? job.id : job.user || "";
      const x = of.get(who) || { n: 0, cell: g };
      x.n++; of.set(who, x);
    }
    const all = [...of].sort((a, b) => b[1].n - a[1].n), shown = all.slice(0, 10);
    const list = shown.map(([who, x]) => [(who || "not yours to see") + " " + x.n, [1, 100, x.cell[2]]]);
    if (all.length > shown.length) list.push([(all.length - shown.length) + " more", [1, 100, all[shown.length][1].cell[2]]]);
    return list;
  }
  function point(box) {
    const c = cells[at], p = box.querySelector(".point"), jobs = c.g.slice(2).filter((i) => i >= 0).map((i) => map.jobs[i]);
    const shared = c.node.shares && c.node.shares[c.k];
    p.textContent = "GPU " + c.k + " of " + c.node.n + " (" + c.node.t + "): " + map.states[c.g[0]] +
      (shared ? ", " + shared + " held" : "") +
      (jobs.length ? (jobs.length > 1 ? ", jobs " : ", job ") + jobs.map((j) => j.id + (j.user ? " of " + j.user : "")).join(", ") : "") + (c.g[1] >= 0 ? ", " + c.g[1] + "\u00a0% busy" : "");
  }
  addEventListener("resize", paint);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  // What needs this script is hidden without it.
  for (const own of document.querySelectorAll(".map [hidden]")) own.hidden = false;
  const tab = document.querySelector("nav [aria-current]"), bar = tab && tab.parentElement;
  if (bar) bar.scrollLeft = tab.offsetLeft - bar.offsetLeft - (bar.clientWidth - tab.offsetWidth) / 2;

  // What stands at a point of a chart: under the pointer, or moved to with the arrow keys.
  function value(svg, i) {
    const all = [...svg.querySelectorAll(".at")], out = svg.closest("figure").querySelector("output");
    if (!all.length || !out) return;
    i = Math.max(0, Math.min(all.length - 1, i));
    for (const r of all) r.classList.toggle("on", r === all[i]);
    svg.dataset.jsAt = i;
    out.textContent = all[i].querySelector("title").textContent;
  }
  const whole = (r) => [...r.parentElement.querySelectorAll(".at")];
  document.addEventListener("pointerover", (e) => {
    const r = e.target.closest && e.target.closest(".at");
    if (r) value(r.parentElement, whole(r).indexOf(r));
  });
  document.addEventListener("keydown", (e) => {
    const svg = e.target.closest && e.target.closest(".plot svg"), step = { ArrowLeft: -1, ArrowRight: 1, Home: -9999, End: 9999 }[e.key];
    if (!svg || !step) return;
    e.preventDefault();
    value(svg, (svg.dataset.jsAt === undefined ? (step > 0 ? -1 : 9999) : +svg.dataset.jsAt) + step);
  });

  // What accounting knows comes when the page is there already; what the page has anyhow is left out.
  async function later() {
    const box = main && main.querySelector("[data-later]");
    if (!box) return;
    try {
      const r = await fetch(box.dataset.later, { headers: { "X-Part": "1" } });
      if (!r.ok) return;
      const doc = new DOMParser().parseFromString(await r.text(), "text/html"), list = doc.getElementById("ended");
      if (!list) return;
      const here = new Set([...main.querySelectorAll("table.jobs tr[data-key]")].map((tr) => tr.dataset.key));
      for (const tr of list.querySelectorAll("tbody tr")) if (here.has(tr.dataset.key)) tr.remove();
      const table = list.querySelector("table");
      if (table && !table.querySelector("tbody tr")) table.remove();
      if (list.querySelector("tbody tr") || list.querySelector(".banner")) box.replaceChildren(...[...list.childNodes].map((n) => document.importNode(n, true)), ...box.childNodes);
    } catch { /* the link stays */ }
  }
  later();

  // Times are the controller's zone; where the reader's is another, each says the reader's too.
  function zones() {
    const own = -new Date().getTimezoneOffset(), there = document.body.dataset.offset;
    if (there === undefined || +there === own) return;
    for (const t of document.querySelectorAll("time[datetime]")) t.title = new Date(t.dateTime).toLocaleString();
    const note = document.getElementById("zone");
    if (note) note.textContent = "Yours: point at a time.";
  }
  zones();

  // The timeline begins at the answer, if the planner has given one, or at this moment.
  const lanes = main && main.querySelector(".lanes");
  if (lanes) {
    const to = lanes.querySelector(".box.if") || lanes.querySelector(".now");
    if (to) lanes.scrollLeft += to.getBoundingClientRect().left - lanes.getBoundingClientRect().left - lanes.clientWidth / 2;
  }

  // A question to the planner is asked once.
  const once = location.search.includes("gpus=");
  if (main && !once && !still.includes(main.dataset.view)) { listen(); whys(); }
  paintSoon(true);
})();
