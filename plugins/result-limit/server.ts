import type { Transport } from "../../src/plugin/plugin.ts";
import { pageOf } from "./pages.ts";
import type { StoredContent, ContentStore } from "./store.ts";
import { describePage, readUri, TOOL, uriOf } from "./notices.ts";

/** The supported MCP protocol versions, newest first. */
const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07"];

const READ_MORE = {
  name: TOOL,
  title: "Read more of a result",
  description:
    "Shows the next page of a result that was too long to be shown at once. Such a result ends with a line that says which id and page to give.",
  inputSchema: {
    type: "object",
    properties: {
      id: { type: "string", description: "The id that the result's last line gives." },
      page: { type: "integer", minimum: 1, default: 2, description: "The page to show." },
    },
    required: ["id"],
    additionalProperties: false,
  },
  annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
};

const TEMPLATES = [
  {
    uriTemplate: uriOf("{id}"),
    name: "result",
    description: "All of a result that was too long to be shown, or what was left out of it.",
  },
  {
    uriTemplate: `${uriOf("{id}")}/{page}`,
    name: "page",
    description: "One page of a result that was too long to be shown.",
    mimeType: "text/plain",
  },
];

/** JSON-RPC's error codes, and MCP's for an unknown resource. */
const CODES = { methodNotFound: -32601, invalidParams: -32602, resourceNotFound: -32002 } as const;

type Reply =
  | { readonly result: object }
  | { readonly error: { readonly code: number; readonly message: string; readonly data?: object } };

type Params = Readonly<Record<string, unknown>>;

/**
 * Serves the stored results as an MCP server. Anyone who knows an id may read the result, so results are not listed.
 * @param tool returns the exposed name of the tool that reads stored results
 */
export function serve(transport: Transport, store: ContentStore, tool: () => string): void {
  // oxlint-disable-next-line unicorn/prefer-add-event-listener
  transport.onmessage = (message: unknown): void => {
    const { id, method, params } = (message ?? {}) as Params;
    // Notifications need no answer; and this server sends no requests, so it receives no responses.
    if (id === undefined || typeof method !== "string") return;
    const reply = handleRequest(method, (params ?? {}) as Params, store, tool);
    void transport.send({ jsonrpc: "2.0", id, ...reply });
  };
  void transport.start();
}

function handleRequest(
  method: string,
  params: Params,
  store: ContentStore,
  tool: () => string,
): Reply {
  switch (method) {
    case "initialize":
      return { result: initializeResult(params["protocolVersion"]) };
    case "ping":
      return { result: {} };
    case "tools/list":
      return { result: { tools: [READ_MORE] } };
    case "tools/call":
      return callTool(params, store, tool);
    case "resources/list":
      return { result: { resources: [] } };
    case "resources/templates/list":
      return { result: { resourceTemplates: TEMPLATES } };
    case "resources/read":
      return readResource(params["uri"], store);
    default:
      return rpcError(CODES.methodNotFound, `There is no method ${method.slice(0, 100)}.`);
  }
}

function initializeResult(requested: unknown): object {
  const protocolVersion = VERSIONS.find((version) => version === requested) ?? VERSIONS[0];
  return {
    protocolVersion,
    capabilities: { tools: {}, resources: {} },
    serverInfo: { name: "toolmux-result-limit", version: "1" },
  };
}

function callTool(
  { name, arguments: args }: Params,
  store: ContentStore,
  tool: () => string,
): Reply {
  if (name !== TOOL) return rpcError(CODES.invalidParams, `The only tool here is ${TOOL}.`);
  const { id: given, page: wanted = 2 } = (args ?? {}) as Params;
  if (typeof given !== "string") {
    return toolError("Give the id that the last line of the result has, as a string.");
  }
  const id = given.trim();
  // Models sometimes write numbers as strings.
  const page = typeof wanted === "string" ? Number(wanted) : wanted;
  if (typeof page !== "number" || !Number.isSafeInteger(page) || page < 1) {
    return toolError("Give a page as a whole number, 1 or more.");
  }
  const kept = store.get(id);
  if (kept === undefined) {
    return toolError(
      "There is no result of that id any more: results are kept for a while only. Call the tool that it came from again, and ask for less.",
    );
  }
  if (kept.kind === "media") {
    return toolError(`That is no text but ${kept.mimeType}: read it as the resource ${uriOf(id)}.`);
  }
  const pages = kept.ends.length;
  const text = pageOf(kept.bytes, kept.ends, page);
  if (text === undefined) return toolError(`There is no page ${page}. The last page is ${pages}.`);
  const notice = describePage({ page, pages }, { id, tool: tool() });
  return { result: { content: [textItem(text), textItem(notice)] } };
}

function readResource(uri: unknown, store: ContentStore): Reply {
  const place = typeof uri === "string" ? readUri(uri) : undefined;
  const kept = place && store.get(place.id);
  const contents = kept && contentsOf(kept, place.page);
  if (contents !== undefined) return { result: { contents: [{ uri, ...contents }] } };
  const message = "There is no such resource any more: results are kept for a while only.";
  return rpcError(CODES.resourceNotFound, message, { uri });
}

/** The whole result or one page; undefined if there is no such page. */
function contentsOf(kept: StoredContent, page: number | undefined): object | undefined {
  if (kept.kind === "media") {
    const { mimeType, bytes } = kept;
    return page === undefined ? { mimeType, blob: bytes.toString() } : undefined;
  }
  const { bytes, ends } = kept;
  const text = page === undefined ? bytes.toString() : pageOf(bytes, ends, page);
  return text === undefined ? undefined : { mimeType: "text/plain", text };
}

function textItem(text: string): object {
  return { type: "text", text };
}

function toolError(text: string): Reply {
  return { result: { content: [textItem(text)], isError: true } };
}

function rpcError(code: number, message: string, data?: object): Reply {
  return { error: { code, message, ...(data !== undefined && { data }) } };
}
