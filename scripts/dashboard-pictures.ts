/**
 * Takes the screenshots docs/pictures/dashboard-*.webp in Chromium. They show the dashboard of a real hub with real
 * servers in a temporary home folder. `--all FOLDER` instead takes every view, in both themes and three widths, as
 * PNG. Run it as `npm run pictures:dashboard`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { VIEWS } from "../src/dashboard/page/state.ts";
import { type BrowserPage, withBrowserPage } from "../test/harness/chromium.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FOLDER = join(ROOT, "docs", "pictures");

const manifestFor = (port: number): string => `
[servers.files]
title = "Project files"
command = "mcp-server-filesystem"
args = ["\${env:HOME}/work"]
tools = { deny = ["write_file", "move_file", "edit_file"] }

[servers.memory]
command = "mcp-server-memory"
env = { MEMORY_FILE_PATH = "\${env:HOME}/memory.json" }
tools.approval = { "delete_*" = "always" }

[servers.thinking]
command = "mcp-server-sequential-thinking"

[servers.reports]
title = "Report builder"
command = "toolmux"
args = ["internal", "demo-server", "slow"]

[servers.text]
command = "toolmux"
args = ["internal", "demo-server", "text"]

[servers.clock]
command = "toolmux"
args = ["internal", "demo-server", "clock"]
lazy = true

[servers.linear]
title = "Linear"
url = "http://127.0.0.1:${port}/mcp"

[servers.metrics]
url = "http://127.0.0.1:${port}/down"

[servers.notes]
command = "notes-server"

[servers.weather]
command = "weather-server"
env = { API_KEY = "\${secret:weather/API_KEY}" }

[modes.reading]
title = "Only reading"
tools = { readOnly = true }

[models.script]
provider = "script"
script = "turns.toml"

[agents.notes]
model = "script"
description = "Keeps notes about the files of my work."
instruction = "You keep notes. Read files before you write about them, and remember what you find in the memory."
tools = { servers = ["files", "memory"] }

[agents.reviewer]
model = "anthropic/claude-sonnet-4-5"
description = "Reviews changes before they are committed."
instruction = "You review changes."
tools = { readOnly = true }
`;

/** An agent in a file, with prompts. */
const AGENT_FILE = `
agents:
  root:
    model: script
    description: Explains the code of a project.
    instruction: You explain code to people who are new to it.
    welcome_message: "Hello! I know **this project**. Ask me, or use one of the prompts below."
    commands:
      tour: {description: Shows the most important parts, instruction: "Give me a tour of \${args}."}
      fix-lint: Fix what the linter says.
      changes: {description: Sums up the last commits, instruction: Sum up the last commits.}
    toolsets:
      - {type: toolmux, filter: {servers: [files]}}
`;

/** The answers of the scripted model for the screenshots. `{work}` stands for the folder of the files. */
const TURNS = `
[[turns]]
when = "What is in"
thinking = "The person wants to know about the folder, so I list it first."
toolCalls = [{ name = "files__list_directory", arguments = { path = "{work}" } }]

[[turns]]
after = "files__list_directory"
text = """The folder has one file:

\`\`\`
README.md
\`\`\`

It begins with **Work**. I can remember that; shall I use \`memory__create_entities\`?"""

[[turns]]
when = "forget"
toolCalls = [{ name = "memory__delete_entities", arguments = { entityNames = ["Old project"] } }]

[[turns]]
text = "Done."
`;

/** The screenshots for the docs: the name of the file, the route of the view, and the theme. */
const PICTURES = [
  { name: "overview", route: "overview", isDark: false },
  { name: "servers", route: "servers", isDark: false },
  { name: "calls", route: "calls", isDark: true },
  { name: "approvals", route: "approvals", isDark: false },
  { name: "agents", route: "agents/notes", isDark: false },
] as const;

/** The user's messages in the screenshots. */
const MESSAGES = ["What is in the folder work?", "Then forget the old project."] as const;

const SIZES = [
  { width: 390, height: 844 },
  { width: 900, height: 800 },
  { width: 1440, height: 900 },
] as const;

/** An MCP client on the stdin and stdout of a hub. */
class StdioClient {
  readonly #hub: ChildProcess;
  #id = 0;
  #rest = "";
  readonly #waiting = new Map<number, () => void>();

  constructor(hub: ChildProcess) {
    this.#hub = hub;
    hub.stdout?.on("data", (chunk: Buffer) => {
      const lines = (this.#rest + chunk.toString()).split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) {
        const { id } = JSON.parse(line) as { readonly id?: number };
        if (id !== undefined) this.#waiting.get(id)?.();
      }
    });
  }

  send(message: object): void {
    this.#hub.stdin?.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  request(method: string, params: object): Promise<void> {
    const id = ++this.#id;
    this.send({ id, method, params });
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }

  call(name: string, args: object): Promise<void> {
    return this.request("tools/call", {
      name,
      arguments: args,
      _meta: { progressToken: `progress-${name}-${this.#id}` },
    });
  }

  async connect(name: string): Promise<void> {
    const clientInfo = { name, version: "2.4.0" };
    await this.request("initialize", {
      protocolVersion: "2025-11-25",
      capabilities: { elicitation: {} },
      clientInfo,
    });
    this.send({ method: "notifications/initialized" });
    await this.request("tools/list", {});
  }
}

/** A server that requires a login at /mcp, and is overloaded at /down. */
async function startRemote(): Promise<Server> {
  const server = createServer(({ url = "", headers }, response) => {
    const issuer = `http://${headers.host}`;
    if (url === "/mcp") response.writeHead(401, { "WWW-Authenticate": "Bearer" }).end();
    else if (url.startsWith("/.well-known/oauth-protected-resource"))
      response.end(JSON.stringify({ resource: `${issuer}/mcp`, authorization_servers: [issuer] }));
    else if (url.startsWith("/.well-known/oauth-authorization-server"))
      response.end(
        JSON.stringify({
          issuer,
          authorization_endpoint: `${issuer}/authorize`,
          token_endpoint: `${issuer}/token`,
          registration_endpoint: `${issuer}/register`,
          response_types_supported: ["code"],
          code_challenge_methods_supported: ["S256"],
        }),
      );
    else if (url === "/register") {
      const redirect_uris = ["http://127.0.0.1/callback"];
      response.writeHead(201, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ client_id: "pictures", redirect_uris }));
    } else response.writeHead(503).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function makeCalls(client: StdioClient, home: string): Promise<void> {
  const words = ["alpha", "beta", "gamma"];
  for (let at = 0; at < 24; at++) {
    await client.call("text__upper", { text: words[at % 3] });
    if (at % 2 === 0) await client.call("text__reverse", { text: words[at % 3] });
    if (at % 3 === 0) await client.call("files__list_directory", { path: join(home, "work") });
    if (at % 4 === 0) await client.call("memory__read_graph", {});
    if (at % 6 === 0) await client.call("files__read_text_file", { path: "/nowhere" });
    if (at % 8 === 0) await client.call("reports__count", { steps: 2, pause: 40 });
  }
}

async function openDashboard(env: NodeJS.ProcessEnv): Promise<{
  readonly child: ChildProcess;
  readonly url: string;
}> {
  const args = ["dashboard", "--port", "0", "--no-browser", "--json"];
  const child = spawn("toolmux", args, { env, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  for await (const chunk of child.stdout) {
    output += String(chunk);
    const [, url] = /"url": "([^"]+)"/.exec(output) ?? [];
    if (url !== undefined) return { child, url };
  }
  throw new Error(`The dashboard does not start: ${output}`);
}

async function setLook(
  page: BrowserPage,
  size: { readonly width: number; readonly height: number },
  isDark: boolean,
): Promise<void> {
  await page.send("Emulation.setDeviceMetricsOverride", {
    ...size,
    deviceScaleFactor: 1,
    mobile: false,
  });
  const features = [{ name: "prefers-color-scheme", value: isDark ? "dark" : "light" }];
  await page.send("Emulation.setEmulatedMedia", { features });
}

async function take(page: BrowserPage, file: string, format: "png" | "webp"): Promise<void> {
  // After 400 ms and two more frames, the layout is final.
  await page.evaluate(
    "new Promise((resolve) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(resolve)), 400))",
  );
  const { data } = await page.send("Page.captureScreenshot", {
    format,
    ...(format === "webp" && { quality: 82 }),
  });
  const bytes = Buffer.from(String(data), "base64");
  writeFileSync(file, bytes);
  console.error(`${file}  ${bytes.length} bytes`);
}

async function show(page: BrowserPage, route: string): Promise<void> {
  await page.evaluate(`location.hash = "#/${route}"`);
  await page.waitFor(`document.querySelector("h1") && !document.querySelector("[aria-busy]")`);
}

/** Talks to an agent until one of its calls waits for approval. @returns the route of the conversation */
async function talk(page: BrowserPage): Promise<string> {
  const send = async (text: string): Promise<void> => {
    await page.evaluate(
      `document.querySelector(".composer textarea").value = ${JSON.stringify(text)}`,
    );
    await page.evaluate(`document.querySelector(".composer").requestSubmit()`);
  };
  await show(page, "agents/notes");
  await page.waitFor(`document.querySelector(".composer textarea")`);
  await send(MESSAGES[0]);
  await page.waitFor(`document.querySelector(".chat-note")`);
  await send(MESSAGES[1]);
  await page.waitFor(`document.querySelector(".chat .approval")`);
  return String(await page.evaluate("location.hash.slice(2)"));
}

async function takePictures(page: BrowserPage, chat: string): Promise<void> {
  for (const { name, route, isDark } of PICTURES) {
    await setLook(page, { width: 1280, height: 800 }, isDark);
    await show(page, name === "agents" ? chat : route);
    await take(page, join(FOLDER, `dashboard-${name}.webp`), "webp");
  }
}

async function takeAll(page: BrowserPage, folder: string, chat: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const routes: readonly string[] = [
    ...VIEWS,
    "servers/notes",
    "tools/files__read_text_file",
    "agents/notes",
    "agents/reviewer",
    "agents/guide.yaml",
    chat,
  ];
  for (const size of SIZES) {
    for (const isDark of [false, true]) {
      await setLook(page, size, isDark);
      for (const route of routes) {
        await show(page, route);
        const name = `${route === chat ? "agents-chat" : route.replace("/", "-")}-${size.width}-${isDark ? "dark" : "light"}.png`;
        await take(page, join(folder, name), "png");
      }
    }
  }
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { all: { type: "string" } } });
  const home = mkdtempSync(join(tmpdir(), "toolmux-dashboard-"));
  const remote = await startRemote();
  const children: ChildProcess[] = [];
  try {
    const bin = join(home, "bin");
    const config = join(home, ".config", "toolmux");
    for (const folder of [bin, config, join(home, "work"), join(home, ".cursor"), FOLDER])
      mkdirSync(folder, { recursive: true });
    symlinkSync(join(ROOT, "dist", "toolmux"), join(bin, "toolmux"));
    writeFileSync(join(home, "work", "README.md"), "# Work\n");
    writeFileSync(join(home, ".cursor", "mcp.json"), '{ "mcpServers": {} }\n');
    const { port } = remote.address() as AddressInfo;
    writeFileSync(join(config, "toolmux.toml"), manifestFor(port), { mode: 0o600 });
    const turns = TURNS.replaceAll("{work}", join(home, "work"));
    writeFileSync(join(config, "turns.toml"), turns, { mode: 0o600 });
    mkdirSync(join(config, "agents"));
    writeFileSync(join(config, "agents", "guide.yaml"), AGENT_FILE, { mode: 0o600 });
    const folders = [bin, join(ROOT, "node_modules", ".bin"), dirname(process.execPath)];
    const env = {
      HOME: home,
      PATH: [...folders, process.env["PATH"] ?? ""].join(":"),
      TOOLMUX_KEYCHAIN: "off",
      TOOLMUX_RUN_DIR: join(home, "run"),
    };
    const hub = spawn("toolmux", ["serve"], { env, cwd: home, stdio: ["pipe", "pipe", "ignore"] });
    children.push(hub);
    const client = new StdioClient(hub);
    await client.connect("cursor");
    const { child, url } = await openDashboard(env);
    children.push(child);
    await withBrowserPage(async (page) => {
      await setLook(page, { width: 1280, height: 800 }, false);
      await page.navigate(url);
      await page.waitFor(`document.querySelector(".link")?.textContent === "live"`);
      await show(page, "servers");
      await page.waitFor(`document.querySelectorAll(".dot.good").length > 4`);
      await makeCalls(client, home);
      void client.call("reports__count", { steps: 240, pause: 1000 });
      void client.call("reports__count", { steps: 60, pause: 2000 });
      void client.call("memory__delete_entities", { entityNames: ["Old project", "Test entry"] });
      await page.waitFor(`document.querySelector("[data-server=reports] .badge.busy")`);
      await page.waitFor(`document.title.startsWith("(1)")`);
      const chat = await talk(page);
      await (values.all === undefined ? takePictures(page, chat) : takeAll(page, values.all, chat));
    });
  } finally {
    for (const child of children) child.kill();
    remote.close();
    rmSync(home, { recursive: true, force: true });
  }
}

await main();
