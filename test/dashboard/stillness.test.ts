import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { skipWithoutChromium } from "../harness/chromium.ts";
import { PageHub, serverDocument, sharedBrowser, show, withPage } from "./page-hub.ts";
import { poll } from "../harness/wait.ts";

const OPTIONS = { skip: skipWithoutChromium, timeout: 240_000 };
const test = (name: string, run: () => Promise<void>): void => void it(name, OPTIONS, run);

const untilTrue = (what: string, find: () => boolean): Promise<unknown> =>
  poll(
    20_000,
    () => what,
    () => find() || undefined,
  );

const CALL = {
  call: 4,
  client: "client-1",
  clientName: "Cursor",
  kind: "tools",
  server: "a",
  tool: "t",
  name: "a__t",
};

/** Clicks the button with this label or text when it can be pressed. */
const pressing = (label: string): string =>
  `[...document.querySelectorAll("button:enabled")].find((one) => (one.getAttribute("aria-label") ?? one.textContent) === ${JSON.stringify(label)})`;

describe("the page in a browser", () => {
  const browser = sharedBrowser();

  test("does not move anything when calls begin and the last one ends", async () => {
    const hub = new PageHub();
    hub.servers = ["a", "b", "c"].map((name) => serverDocument(name));
    const startedAt = Date.now();
    let number = 10;
    await withPage(browser(), hub, async (page) => {
      for (const route of ["overview", "servers", "servers/a", "tools", "clients", "hubs"]) {
        await show(page, route);
        const running = `document.querySelector("nav a[href='#/calls'] .count").textContent`;
        await page.waitFor(`${running} === ""`);
        await page.evaluate(`window.shifts = [];
          window.shiftObserver?.disconnect();
          window.shiftObserver = new PerformanceObserver((list) => {
            for (const entry of list.getEntries())
              shifts.push(...entry.sources.map(({ node }) => entry.value.toFixed(4) + " " + (node?.outerHTML ?? node?.textContent ?? "?").slice(0, 80)));
          });
          shiftObserver.observe({ type: "layout-shift" })`);
        for (let round = 0; round < 2; round++) {
          number++;
          const call = { ...CALL, call: number, startedAt };
          hub.servers = hub.servers.map((one) =>
            one.name === "a" ? { ...one, inFlight: 1 } : one,
          );
          hub.documents["GET /calls"] = {
            calls: [{ ...call, duration: 1, waitingFor: "server" }],
          };
          hub.emit({ ...call, kind: "callStarted" });
          await page.waitFor(`${running} === "1"`);
          if (route === "servers")
            await page.waitFor(`document.querySelector("[data-server=a] .badge.busy")`);
          hub.servers = hub.servers.map((one) =>
            one.name === "a" ? { ...one, inFlight: 0 } : one,
          );
          hub.documents["GET /calls"] = { calls: [] };
          hub.emit({ ...call, kind: "callFinished", outcome: "answered", duration: 1 });
          await page.waitFor(`${running} === ""`);
        }
        const frames = `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(shifts))))`;
        assert.deepEqual(await page.evaluate(frames), [], route);
      }
    });
  });

  test("shows lines of a log that repeat as one with their number, and keeps the indentation of stderr", async () => {
    const line = (seq: number, text: string, about: object = {}): object => ({
      seq,
      at: seq,
      level: "info",
      source: "stderr",
      server: "a",
      text,
      ...about,
    });
    const hub = new PageHub({
      "GET /servers/a/log": {
        entries: [
          line(1, "begin"),
          ...[2, 3, 4].map((seq) => line(seq, "the same")),
          line(5, "    at indented (file.js:1)"),
          line(6, "the same"),
          line(7, "connected", { source: "hub" }),
        ],
        next: 8,
      },
    });
    hub.servers = [serverDocument("a")];
    await withPage(browser(), hub, async (page) => {
      await show(page, "logs/a");
      await page.waitFor(`document.querySelectorAll(".line").length === 5`);
      const lines = `[...document.querySelectorAll(".line")].map((line) => {
        const text = line.querySelector(".text");
        return [
          line.querySelector(".level").textContent,
          text.querySelector(".times")?.textContent ?? "",
          [...text.childNodes].at(-1).textContent,
          getComputedStyle(text).whiteSpaceCollapse,
          line.classList.contains("of-stderr"),
        ];
      })`;
      assert.deepEqual(await page.evaluate(lines), [
        ["stderr", "", "begin", "preserve", true],
        ["stderr", "×3", "the same", "preserve", true],
        ["stderr", "", "    at indented (file.js:1)", "preserve", true],
        ["stderr", "", "the same", "preserve", true],
        ["info", "", "connected", "preserve", false],
      ]);
      hub.emit({ kind: "log", level: "info", source: "hub", server: "a", text: "connected" });
      await page.waitFor(`document.querySelector(".line:last-child, li:last-child .line .times")`);
      await page.waitFor(
        `[...document.querySelectorAll(".line")].at(-1).querySelector(".times")?.textContent === "×2"`,
      );
    });
  });

  test("shows lines of stderr that were written before as one, which has them all when it is opened", async () => {
    const trace = ["Error: no file", "    at a (b.js:1)", "exit"];
    const texts = [...trace, "", ...trace, "", ...trace, "other", "", "other"];
    const entries = texts.map((text, at) => ({
      seq: at + 1,
      at: at + 1,
      level: "info",
      server: "a",
      ...(text === "" ? { text: "connecting", source: "hub" } : { text, source: "stderr" }),
    }));
    const hub = new PageHub({ "GET /servers/a/log": { entries, next: entries.length + 1 } });
    hub.servers = [serverDocument("a")];
    await withPage(browser(), hub, async (page) => {
      await show(page, "logs/a");
      const lines = `[...document.querySelectorAll(".line .text")].map((line) => line.textContent)`;
      await page.waitFor(`document.querySelectorAll(".line").length > 3`);
      const [, , , , fold, ...rest] = (await page.evaluate(lines)) as readonly string[];
      assert.match(fold ?? "", /^the same 3 lines as at \d\d:\d\d:\d\d$/);
      assert.deepEqual(rest, ["connecting", ...trace, "other", "connecting", "other"]);
      await page.evaluate(`document.querySelectorAll(".line")[4].click()`);
      await page.waitFor(`document.querySelector("section[aria-label='The chosen line'] pre")`);
      assert.equal(
        await page.evaluate(
          `document.querySelector("section[aria-label='The chosen line'] pre").textContent`,
        ),
        trace.join("\n"),
      );
    });
  });

  test("shows arguments and result of an ended call if a plugin has kept them, and else what keeps them", async () => {
    const attack = `<img src=x onerror="window.hacked=1">`;
    const ended = {
      ...CALL,
      startedAt: Date.now(),
      duration: 2,
      personWait: 0,
      queueWait: 0,
      sent: true,
      outcome: "answered",
      requestSize: 1,
      resultSize: 2,
    };
    const hub = new PageHub({
      "GET /activity": { since: 0, calls: [{ ...ended, call: 5, tool: "none" }, ended] },
      "GET /activity/4": {
        call: 4,
        by: "audit-log",
        arguments: JSON.stringify({ path: attack }),
        result: JSON.stringify({ content: [{ type: "text", text: attack }] }),
      },
      "GET /activity/5": { call: 5 },
    });
    hub.servers = [serverDocument("a")];
    await withPage(browser(), hub, async (page) => {
      await show(page, "calls");
      const open = async (tool: string): Promise<void> => {
        await page.waitFor(pressing(tool));
        await page.evaluate(`${pressing(tool)}.click()`);
      };
      await open("t");
      await page.waitFor(`document.querySelector("[data-kept]")`);
      const texts = `[...document.querySelectorAll("[data-kept] section > pre, [data-kept] .flow > pre")].map((one) => one.textContent)`;
      assert.deepEqual(await page.evaluate(texts), [
        JSON.stringify({ path: attack }, null, 2),
        attack,
      ]);
      assert.equal(await page.evaluate(`window.hacked ?? null`), null);
      await page.evaluate(`${pressing("Close")}.click()`);
      await open("none");
      await page.waitFor(
        `document.querySelector(".drawer")?.textContent.includes("No arguments and no result are kept of this call.")`,
      );
      assert.equal(await page.evaluate(`document.querySelector("[data-kept]")`), null);
    });
  });

  test("edits the entry of a server as TOML with its problems beside the lines, logs in, and deletes it", async () => {
    const hub = new PageHub({
      "GET /servers/a/entry": {
        name: "a",
        file: "/m.toml",
        entry: { url: "https://old.example" },
        toml: 'url = "https://old.example"\nbad = 1\n',
        schema: { properties: { url: { type: "string" } } },
      },
      "POST /servers/a/preview": {
        before: 'url = "https://old.example"\n',
        problems: [{ path: "bad", message: "unknown key", line: 2, column: 1 }],
      },
      "PATCH /servers/a": {},
      "POST /servers/a/login": {},
      "DELETE /servers/a": {},
    });
    hub.servers = [
      serverDocument("a", {
        transport: "http",
        state: "authenticating",
        lastError: { code: "unauthorized", message: "It wants a login." },
      }),
    ];
    await withPage(browser(), hub, async (page) => {
      const press = async (label: string): Promise<void> => {
        await page.waitFor(pressing(label));
        await page.evaluate(`${pressing(label)}.click()`);
      };
      const sent = (line: string): readonly string[] =>
        hub.requests.flatMap((one) => (one.line.startsWith(line) ? [one.body] : []));
      await show(page, "servers/a/config");
      await press("TOML");
      const type = async (text: string): Promise<void> => {
        await page.waitFor(`document.querySelector(".editor textarea")`);
        await page.evaluate(`(() => {
          const field = document.querySelector(".editor textarea");
          field.value = ${JSON.stringify(text)};
          field.dispatchEvent(new Event("input", { bubbles: true }));
        })()`);
      };
      await type('url = "https://new.example"\nbad = 2\n');
      await page.waitFor(`document.querySelector(".editor textarea[aria-invalid=true]")`);
      const marked = `[...document.querySelectorAll(".marks .bad")].map((one) => one.textContent)`;
      assert.deepEqual(await page.evaluate(marked), ["2"]);
      assert.equal(
        await page.evaluate(`document.querySelector(".preview .primary").disabled`),
        true,
      );
      const entry = { url: "https://new.example" };
      hub.documents["POST /servers/a/preview"] = {
        before: 'url = "https://old.example"\n',
        toml: 'url = "https://new.example"\n',
        entry,
        problems: [],
      };
      await type('url = "https://new.example"\n');
      await page.waitFor(`document.querySelector(".diff .added")?.textContent.includes("new")`);
      await press("Save");
      await untilTrue("the change", () => sent("PATCH /v1/servers/a").length > 0);
      assert.deepEqual(sent("PATCH /v1/servers/a"), [JSON.stringify({ entry, persist: true })]);
      assert.equal(
        sent("POST /v1/servers/a/preview").at(-1),
        JSON.stringify({ toml: 'url = "https://new.example"\n' }),
      );

      await show(page, "servers/a");
      await press("Log in a");
      await untilTrue("the login", () => sent("POST /v1/servers/a/login").length > 0);

      await press("Delete a");
      await press("Keep");
      assert.deepEqual(sent("DELETE "), []);
      await press("Delete a");
      await press("Delete a now");
      await untilTrue("the end of the server", () => sent("DELETE /v1/servers/a").length > 0);
      await page.waitFor(`location.hash === "#/servers"`);
    });
  });
});
