import {
  type McpServer,
  type ReadResourceResult,
  ResourceTemplate,
} from "@modelcontextprotocol/server";
import { PNG } from "./media.ts";

const TEXT = "test://static-text";
const BINARY = "test://static-binary";
const WATCHED = "test://watched-resource";
const TEMPLATE = "test://template/{id}/data";

/** Resources, a resource template, and subscriptions. */
export function registerResources(server: McpServer): void {
  const plain = { description: "A text.", mimeType: "text/plain" };
  server.registerResource("static-text", TEXT, plain, () =>
    resourceOf(TEXT, "text/plain", "This is the content of the static text resource."),
  );
  const image = { description: "An image.", mimeType: "image/png" };
  server.registerResource("static-binary", BINARY, image, () => ({
    contents: [{ uri: BINARY, mimeType: "image/png", blob: PNG }],
  }));
  const watched = { description: "A text to subscribe to.", mimeType: "text/plain" };
  server.registerResource("watched-resource", WATCHED, watched, () =>
    resourceOf(WATCHED, "text/plain", "Nothing has changed."),
  );
  const json = { description: "Data of whatever has an id.", mimeType: "application/json" };
  const template = new ResourceTemplate(TEMPLATE, { list: undefined });
  server.registerResource("template", template, json, ({ href }, { id }) => {
    const data = { id, templateTest: true, data: `Data for ID: ${String(id)}` };
    return resourceOf(href, "application/json", JSON.stringify(data));
  });
  const watchers = new Set<string>();
  server.server.setRequestHandler("resources/subscribe", ({ params }) => {
    watchers.add(params.uri);
    return {};
  });
  server.server.setRequestHandler("resources/unsubscribe", ({ params: { uri } }) => {
    if (!watchers.delete(uri)) throw new Error(`Nobody has subscribed to ${uri}`);
    return {};
  });
}

function resourceOf(uri: string, mimeType: string, text: string): ReadResourceResult {
  return { contents: [{ uri, mimeType, text }] };
}
