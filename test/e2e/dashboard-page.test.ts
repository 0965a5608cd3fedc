import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { parseToml } from "../../src/manifest/syntax/toml.ts";
import { type BrowserPage, skipWithoutChromium, withBrowserPage } from "../harness/chromium.ts";
import {
  controlled,
  type ControlledServers,
  holdCall,
  withControlledServers,
} from "../harness/controlled-servers.ts";
import { EXIT_LIMIT, executable, itWith, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { RawClient } from "../harness/raw-client.ts";
import { poll } from "../harness/wait.ts";

const it = itWith({ skip: skipWithoutChromium, timeout: 120_000 });

/** Gets a link with `toolmux dashboard`, and opens the page. @param port of a hub that serves it; 0: the command does */
async function withDashboard(
  { dir, env }: Pick<ControlledServers, "dir" | "env">,
  run: (page: BrowserPage) => Promise<void>,
  port = "0",
): Promise<void> {
  const args = ["dashboard", "--port", port, "--json"];
  const program = new RawClient(executable(), args, dir, env);
  const link = await program.until(15_000, "the link", () =>
    program.lines.map(({ text }) => /http:\S+#token=[\w-]+/.exec(text)?.[0]).find(Boolean),
  );
  await withBrowserPage(async (page) => {
    await page.navigate(link);
    await page.waitFor(`document.querySelector(".link").textContent === "live"`);
    await run(page);
  });
  if (port === "0") program.signal("SIGTERM");
  await program.waitForExit(EXIT_LIMIT);
}

/** Presses the button with this label or text when it is there. */
async function press(page: BrowserPage, label: string): Promise<void> {
  const button = `[...document.querySelectorAll("button:enabled:not([aria-disabled=true])")].find((one) => (one.getAttribute("aria-label") ?? one.textContent) === ${JSON.stringify(label)})`;
  await page.waitFor(button);
  await page.evaluate(`${button}.click()`);
}

const stateOf = (server: string): string =>
  `document.querySelector("[data-server=${server}]")?.dataset.state`;

describe("the page of a real hub", () => {
  it("does what its buttons say, and goes on with the next hub of the same manifest", () =>
    withControlledServers(
      { servers: { a: controlled(), broken: controlled({ reconnect: { policy: "none" } }) } },
      async (servers) => {
        servers.setRules("broken", { start: "exit" });
        await servers.serve((client) =>
          withDashboard(servers, async (page) => {
            await client.initializeAndList();
            await page.waitFor(`document.querySelector("[data-trouble=broken]")`);
            await page.evaluate(`location.hash = "#/servers"`);
            await page.waitFor(`${stateOf("a")} === "connected"`);

            servers.setRules("broken", {});
            await press(page, "Retry broken");
            await page.waitFor(`${stateOf("broken")} === "connected"`);

            await press(page, "Actions for a");
            await press(page, "Disconnect");
            await page.waitFor(`${stateOf("a")} === "stopped"`);
            servers.setRules("a", { start: "hang" });
            await press(page, "Start a");
            await page.waitFor(`${stateOf("a")} === "connecting"`);
            await press(page, "Cancel a");
            await page.waitFor(`!["connecting", "stopping"].includes(${stateOf("a")})`);
            servers.setRules("a", {});
            await press(page, "Actions for a");
            await page.evaluate(`document.querySelector("[role=menuitem]").click()`);
            await page.waitFor(`${stateOf("a")} === "connected"`);

            const held = await holdCall(servers, client, "a");
            await page.evaluate(`location.hash = "#/calls"`);
            await press(page, "Cancel hold");
            const { message } = await held.response();
            assert.equal(message.error?.code, -31005);
            await page.waitFor(
              `[...document.querySelectorAll(".outcome")].some(({ textContent }) => textContent === "cancelled: operator")`,
            );

            await page.evaluate(`location.hash = "#/servers"`);
            client.signal("SIGKILL");
            await page.waitFor(`document.querySelector(".banner.busy")`);
            await servers.serve(async (next) => {
              await next.initializeAndList();
              await page.waitFor(
                `!document.querySelector(".banner.busy") && ${stateOf("a")} === "connected"`,
              );
            });
          }),
        );
      },
    ));
});

describe("the page of a real hub and its manifest", () => {
  it("hides a tool, shows it again, changes an entry as TOML, shows what the audit log has kept, and deletes a server", () =>
    withTestFolder(
      {
        servers: { s: scripted(), t: scripted() },
        plugins: [{ use: "audit-log", options: { arguments: true, results: true } }],
      },
      async (folder) => {
        const { dir, env, config } = folder;
        const client = new RawClient(executable(), ["--config", config], dir, env);
        await client.initializeAndList();
        const entryOf = (name: string): Readonly<Record<string, unknown>> | undefined => {
          const parsed = parseToml(readFileSync(config, "utf8"));
          assert.ok(parsed.ok);
          const { servers } = parsed.root as {
            readonly servers: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
          };
          return servers[name];
        };
        const entryIs = (what: string, test: () => boolean): Promise<unknown> =>
          poll(
            30_000,
            () => what,
            () => test() || undefined,
          );
        await withDashboard(folder, async (page) => {
          const hide = `document.querySelector("[aria-label='Show echo of s to clients']")`;
          // The name that clients see is the name of a row whose tool they see.
          const isShown = (is: boolean): Promise<unknown> =>
            page.waitFor(
              `${hide}?.checked === ${is} && ${hide}.closest("[data-tool]").dataset.tool === "${is ? "s__echo" : "echo"}"`,
            );
          await page.evaluate(`location.hash = "#/servers/s/tools"`);
          await isShown(true);
          await page.evaluate(`${hide}.click()`);
          await entryIs(
            "tools.deny",
            () => JSON.stringify(entryOf("s")?.["tools"]) === '{"deny":["echo"]}',
          );
          await isShown(false);
          await page.evaluate(`${hide}.click()`);
          await entryIs("no tools.deny", () => entryOf("s")?.["tools"] === undefined);
          await isShown(true);

          await page.evaluate(`location.hash = "#/servers/s/config"`);
          await press(page, "TOML");
          await page.waitFor(
            `document.querySelector(".editor textarea")?.value.includes("command")`,
          );
          await page.evaluate(`(() => {
            const field = document.querySelector(".editor textarea");
            field.value = "title = \\"Other\\"\\n" + field.value;
            field.dispatchEvent(new Event("input", { bubbles: true }));
          })()`);
          await press(page, "Save");
          await entryIs("the title", () => entryOf("s")?.["title"] === "Other");

          const called = client.sendCall("s__echo", '{"path":"kept"}');
          await client.response(called);
          await page.evaluate(`location.hash = "#/calls"`);
          await press(page, "echo");
          await page.waitFor(
            `[...document.querySelectorAll("[data-kept] pre")].filter(({ textContent }) => textContent.includes("kept")).length >= 2`,
          );
          await press(page, "Close");

          await page.evaluate(`location.hash = "#/servers/t"`);
          await press(page, "Delete t");
          await press(page, "Delete t now");
          await entryIs("one server", () => entryOf("t") === undefined);
        });
        client.end();
        await client.waitForExit(EXIT_LIMIT);
      },
    ));
});

describe("the page of two real hubs", () => {
  it("shows the one that is chosen, switches its mode for all clients and for one, and decides about its calls", () =>
    withTestFolder(
      {
        defaults: { approval: "always" },
        servers: { s: scripted() },
        modes: { none: { title: "Nothing", tools: { or: [] } } },
      },
      async (folder) => {
        const { dir, env, config } = folder;
        const start = async (): Promise<RawClient> => {
          const client = new RawClient(executable(), ["--config", config], dir, env);
          await client.initializeAndList();
          return client;
        };
        const [one, other] = [await start(), await start()];
        const toolsOf = async (client: RawClient): Promise<number> => {
          const { message } = await client.request("tools/list", {});
          return (message.result as { readonly tools: readonly unknown[] }).tools.length;
        };
        const choose = async (page: BrowserPage, select: string, option: string): Promise<void> => {
          const found = `[...document.querySelectorAll("${select} option")].find(({ textContent }) => textContent.includes("${option}"))`;
          await page.waitFor(found);
          await page.evaluate(`(() => {
            const select = ${found}.parentElement;
            select.value = ${found}.value;
            select.dispatchEvent(new Event("input", { bubbles: true }));
          })()`);
        };
        await withDashboard(folder, async (page) => {
          // The page shows the hub that was started last.
          const id = other.sendCall("s__echo");
          await page.evaluate(`location.hash = "#/approvals"`);
          await press(page, "Allow once: Allow this call, s__echo");
          assert.equal((await other.response(id)).message.error, undefined);
          await page.waitFor(`!document.querySelector("[data-approval]")`);
          const next = other.sendCall("s__echo");
          await press(page, "Deny: Do not allow this call, s__echo");
          assert.notDeepEqual(
            (await other.response(next)).message.result,
            (await other.response(id)).message.result,
          );

          await page.evaluate(`location.hash = "#/modes"`);
          await press(page, "Use for all: Nothing");
          await page.waitFor(`document.querySelector(".chosen")?.dataset.mode === "none"`);
          assert.deepEqual([(await toolsOf(one)) > 0, await toolsOf(other)], [true, 0]);

          await choose(page, ".top select", `· ${one.pid}`);
          await page.waitFor(`document.querySelector(".chosen")?.dataset.mode === "full"`);
          await choose(page, ".pair select", "Nothing");
          await page.waitFor(
            `document.querySelector("[data-mode=none]").textContent.includes("1 client")`,
          );
          assert.equal(await toolsOf(one), 0);
          assert.equal(
            await page.evaluate(`document.querySelector(".chosen").dataset.mode`),
            "full",
          );
        });
        for (const client of [one, other]) {
          client.end();
          await client.waitForExit(EXIT_LIMIT);
        }
      },
    ));
});

const TURNS = `
[[turns]]
after = "s__echo"
text = "After the call: {message}"
[[turns]]
after = "s__hang"
text = "It was cancelled."
[[turns]]
when = "echo"
thinking = "I repeat it."
toolCalls = [{ name = "s__echo", arguments = { path = "a" } }]
[[turns]]
when = "sleep"
toolCalls = [{ name = "s__hang", arguments = {} }]
[[turns]]
when = "hang"
text = "I begin"
hang = true
[[turns]]
text = "You said: {message}"
`;

const AGENTS = {
  servers: { s: scripted() },
  modes: { none: { title: "Nothing", tools: { or: [] } } },
  models: { main: { provider: "script", script: "turns.toml" } },
  agents: {
    main: {
      model: "main",
      instruction: "Repeat what is said.",
      tools: "all",
      approval: "always",
    },
    keyless: { model: "anthropic/x", instruction: "No key." },
  },
};

describe("the chat with an agent of a real hub", () => {
  it("shows each step, asks for approval, cancels a call, stops an answer, and outlives a reload of the page", () =>
    withTestFolder(AGENTS, async (folder) => {
      const { dir, env, config } = folder;
      writeFileSync(join(dir, "turns.toml"), TURNS);
      const args = ["serve", "--http", "127.0.0.1:0", "--dashboard", "--config", config];
      const hub = new RawClient(executable(), args, dir, env);
      const url = await hub.until(
        15_000,
        "the address",
        () => /http:\S+\/ui\//.exec(hub.stderr)?.[0],
      );
      const say = async (page: BrowserPage, text: string): Promise<void> => {
        await page.waitFor(`document.querySelector(".composer textarea:enabled")`);
        await page.evaluate(`document.querySelector(".composer textarea").focus()`);
        await page.send("Input.insertText", { text });
        const key = { key: "Enter", code: "Enter", windowsVirtualKeyCode: 13 };
        await page.send("Input.dispatchKeyEvent", { type: "keyDown", text: "\r", ...key });
        await page.send("Input.dispatchKeyEvent", { type: "keyUp", ...key });
      };
      const answers = (text: string): string =>
        `[...document.querySelectorAll(".answer")].at(-1)?.textContent === ${JSON.stringify(text)}`;
      const isIdle = `document.querySelector(".chat-head .badge")?.textContent === "idle"`;
      const endOf = (text: string): string =>
        `[...document.querySelectorAll(".chat-note")].at(-1).textContent.startsWith(${JSON.stringify(text)})`;
      const show = (page: BrowserPage, route: string): Promise<unknown> =>
        page.evaluate(`location.hash = "#/${route}"`);
      await withDashboard(
        folder,
        async (page) => {
          await show(page, "agents/keyless");
          await press(page, "Set anthropic");
          await show(page, "agents/main");
          await page.waitFor(
            `document.querySelector(".chat pre")?.textContent === "Repeat what is said."`,
          );
          await say(page, "echo it");
          await press(page, "Allow once: Allow this call, s__echo");
          await page.waitFor(`${isIdle} && ${endOf("")}`);
          await page.waitFor(`document.querySelector(".chat-call .dot.good")`);
          assert.equal(
            await page.evaluate(`document.querySelector(".thinking p").textContent`),
            "I repeat it.",
          );
          await say(page, "echo again");
          await press(page, "Deny: Do not allow this call, s__echo");
          await page.waitFor(
            `${isIdle} && document.querySelector(".chat-call .number.bad")?.textContent.startsWith("not allowed")`,
          );
          await say(page, "sleep");
          await press(
            page,
            "Allow for this session: Allow this tool until the client disconnects, s__hang",
          );
          await press(page, "Cancel the call of s__hang");
          await page.waitFor(`${isIdle} && ${answers("It was cancelled.")}`);

          await say(page, "hang");
          await page.waitFor(answers("I begin"));
          await press(page, "Stop");
          await page.waitFor(`${isIdle} && ${endOf("Stopped.")}`);

          await page.waitFor(`document.querySelector(".chat-head select")`);
          await page.evaluate(`(() => {
            const mode = document.querySelector(".chat-head select");
            mode.value = "none";
            mode.dispatchEvent(new Event("input", { bubbles: true }));
          })()`);
          await say(page, "echo once more");
          await page.waitFor(`${isIdle} && document.querySelectorAll(".said").length === 5`);
          const text = `document.querySelector(".chat-log").textContent`;
          const before = await page.evaluate(text);
          await page.evaluateAndNavigate("location.reload()");
          await page.waitFor(`${isIdle} && document.querySelectorAll(".said").length === 5`);
          assert.equal(await page.evaluate(text), before);
          await page.waitFor(`document.querySelector(".chat-head select")?.value === "none"`);
          await press(page, "Close the conversation");
          await page.waitFor(`!document.querySelector("[data-run]")`);
        },
        new URL(url).port,
      );
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }));
});
