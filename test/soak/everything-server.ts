/**
 * A server with some of everything, that puts its name, its process's number and the key that it was given into every
 * answer: everything-server.ts NAME. Its tools are "echo"; "steps", which tells of its progress first; "stuck", which ends only when it is
 * cancelled; "change", which makes its list of tools another.
 */
import process from "node:process";
import { createInterface } from "node:readline";

interface Request {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: {
    readonly name?: string;
    readonly uri?: string;
    readonly arguments?: { readonly key?: string };
    readonly _meta?: { readonly progressToken?: number | string };
  };
}

const STEPS = 3;
const [name = ""] = process.argv.slice(2);
let changes = 0;

function send(message: object): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function call({ id, params }: Request): void {
  const key = params?.arguments?.key ?? "";
  const tool = params?.name;
  if (tool === "stuck") return;
  if (tool === "steps") {
    const progressToken = params?._meta?.progressToken;
    for (let progress = 1; progress <= STEPS; progress++) {
      const step = { progressToken, progress, total: STEPS, message: key };
      send({ method: "notifications/progress", params: step });
    }
  }
  send({ id, result: { content: [{ type: "text", text: sign(key) }] } });
  if (tool !== "change") return;
  changes++;
  send({ method: "notifications/tools/list_changed" });
}

function sign(key: string): string {
  return `${name} ${process.pid} ${key}`;
}

function answer(request: Request): void {
  const { id, method, params } = request;
  if (id === undefined) return;
  switch (method) {
    case "initialize": {
      const capabilities = { tools: { listChanged: true }, prompts: {}, resources: {} };
      const serverInfo = { name, version: "1.0.0" };
      send({ id, result: { protocolVersion: "2025-06-18", capabilities, serverInfo } });
      return;
    }
    case "tools/list": {
      const names = ["echo", "steps", "stuck", "change", `changed_${changes}`];
      const inputSchema = { type: "object", properties: { key: { type: "string" } } };
      send({ id, result: { tools: names.map((tool) => ({ name: tool, inputSchema })) } });
      return;
    }
    case "prompts/list":
      send({ id, result: { prompts: [{ name: "say", arguments: [{ name: "key" }] }] } });
      return;
    case "resources/list":
      send({ id, result: { resources: [{ uri: `medley://${name}/page`, name: "page" }] } });
      return;
    case "tools/call":
      call(request);
      return;
    case "prompts/get": {
      const content = { type: "text", text: sign(params?.arguments?.key ?? "") };
      send({ id, result: { messages: [{ role: "user", content }] } });
      return;
    }
    case "resources/read":
      send({ id, result: { contents: [{ uri: params?.uri, text: sign("") }] } });
      return;
    case "resources/templates/list":
      send({ id, result: { resourceTemplates: [] } });
      return;
    default:
      send({ id, result: {} });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  answer(JSON.parse(line) as Request);
}
