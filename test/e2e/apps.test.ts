import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe } from "node:test";
import {
  Client,
  InMemoryTransport,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { App } from "@modelcontextprotocol/ext-apps";
import { AppBridge, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";
import { SERVER_TRANSPORTS, withServe } from "../harness/serve.ts";
import { it } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";

const HOST = { name: "host", version: "1" };

/** The examples of MCP Apps: both have a tool get-time, and a user interface of the same URI that calls it. */
const SERVERS = {
  one: publishedServer("basic-vanillajs", ["--stdio"]),
  two: publishedServer("basic-preact", ["--stdio"]),
};

const PAGE = readFileSync(
  new URL(
    "../../node_modules/@modelcontextprotocol/server-basic-preact/dist/mcp-app.html",
    import.meta.url,
  ),
  "utf8",
);

/** A user interface as a host shows it: what it asks of its server goes through the client. */
async function show(client: Client): Promise<App> {
  const [view, host] = InMemoryTransport.createLinkedPair();
  const bridge = new AppBridge(client, HOST, { serverTools: {}, serverResources: {} });
  await bridge.connect(host);
  const app = new App({ name: "view", version: "1" }, {}, { autoResize: false });
  await app.connect(view);
  return app;
}

for (const face of SERVER_TRANSPORTS) {
  describe(`the user interfaces of servers behind the hub, for a client over ${face}`, () => {
    it("are found where their tools name them, and call the tools of their own servers by the names that they know", async () => {
      await withServe(face, { servers: SERVERS }, async ({ target: reach }) => {
        const client = new Client(HOST);
        await client.connect(
          typeof reach === "string"
            ? new StreamableHTTPClientTransport(new URL(reach))
            : new StdioClientTransport({ ...reach, args: [...reach.args] }),
        );
        const { tools } = await client.listTools();
        const uris = tools.map((tool) => getToolUiResourceUri(tool));
        assert.deepEqual(
          tools.map(({ name }) => name),
          ["one__get-time", "two__get-time"],
        );
        assert.deepEqual(uris, [
          "ui://get-time/mcp-app.html",
          "ui://toolmux/two/get-time/mcp-app.html",
        ]);

        const app = await show(client);
        await assert.rejects(app.callServerTool({ name: "get-time", arguments: {} }));

        const uri = uris[1] ?? "";
        const { contents } = await client.readResource({ uri });
        const [content] = contents;
        assert.equal(content?.uri, uri);
        assert.ok(content !== undefined && "text" in content);
        assert.ok(content.text === PAGE, "it is the page of the second server");

        const result = await app.callServerTool({ name: "get-time", arguments: {} });
        assert.equal(result.isError ?? false, false);
        await client.close();
      });
    });
  });
}
