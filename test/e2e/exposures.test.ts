import assert from "node:assert/strict";
import { appendFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe } from "node:test";
import { run, startOn } from "../harness/command.ts";
import { listToolNames, waitForListChanged } from "../harness/controlled-servers.ts";
import { closeClient, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { poll } from "../harness/wait.ts";

const SEARCH = ["search_tools", "describe_tools", "call_tool", "call_read_only_tool"];

describe("a hub whose client searches for tools", () => {
  it("lists its own four, finds and calls the others, and follows the manifest", () =>
    withTestFolder({ servers: { a: scripted(), b: scripted() } }, async (folder) => {
      appendFileSync(folder.config, '\n[hub]\nexpose = "search"\nexposeBudget = 10\n');
      const client = startOn(folder);
      await client.initializeAndList();
      assert.deepEqual(await listToolNames(client), SEARCH);
      const call = async (name: string, args: object) =>
        (await client.request("tools/call", { name, arguments: args })).message;
      const found = await call("search_tools", { query: "echo", server: "a" });
      const { tools } = found.result?.["structuredContent"] as { tools: { name: string }[] };
      assert.equal(tools[0]?.name, "a__echo");
      const direct = await call("a__echo", { text: "x" });
      const named = await call("call_tool", { name: "a:echo", arguments: { text: "x" } });
      assert.deepEqual(named.result, direct.result);
      const runFolder = folder.env["TOOLMUX_RUN_DIR"] ?? "";
      await poll(
        10_000,
        () => "the socket of the hub",
        () =>
          (existsSync(runFolder) &&
            readdirSync(runFolder).some((name) => name.endsWith(".json"))) ||
          undefined,
      );
      const text = readFileSync(folder.config, "utf8");
      writeFileSync(folder.config, text.replace('expose = "search"', 'expose = "direct"'));
      await waitForListChanged(client, 1);
      assert.ok((await listToolNames(client)).includes("b__echo"));
      assert.match((await run(folder, "status")).stdout, /exposeBudget \(10\)[^]*expose = "auto"/);
      await closeClient(client);
    }));

  it("has the exposure of --expose, and writes it into a client's file", () =>
    withTestFolder({ servers: { a: scripted() } }, async (folder) => {
      const client = startOn(folder, "serve", "--expose", "select");
      await client.initializeAndList();
      assert.deepEqual(await listToolNames(client), ["search_tools", "select_tools", "call_tool"]);
      await closeClient(client);
      const printed = await run(folder, "install", "cursor", "--expose", "search", "--print");
      assert.match(printed.stdout, /"--expose",\s*"search"/);
      const url = "http://127.0.0.1:8700/mcp";
      const remote = await run(
        folder,
        "install",
        "cursor",
        "--http",
        url,
        "--expose",
        "auto",
        "--print",
      );
      assert.match(remote.stdout, /mcp\?expose=auto/);
      assert.equal((await run(folder, "serve", "--expose", "code")).code, 2);
    }));
});
