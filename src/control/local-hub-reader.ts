import { textOf } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { readItem } from "../catalog/listing.ts";
import { type ClientAcceptor, HubClient } from "../frontend/hub-client.ts";
import type { Hub } from "../hub/hub.ts";
import { isRunnable, type Manifest, type ServerSpec } from "../manifest/manifest.ts";
import { suggestName } from "../manifest/problems.ts";
import { type ServerStatus, unusableStatusOf } from "../upstream/status.ts";
import {
  catalogDocument,
  catalogDocumentOfMode,
  checkQuery,
  describeServer,
  foundToolsDocument,
  redactTexts,
  type ServerTexts,
} from "./documents.ts";
import type { HubReader, HubReaderOptions } from "./hub-reader.ts";
import { pinsDocument } from "./pins-api.ts";
import type { ToolDefinitionDocument } from "./schemas.ts";

export interface LocalHub {
  readonly hub: Hub;
  /** The manifest in force. Servers that the hub cannot use are described, too. */
  readonly manifest: Manifest;
  /** Removes secrets from a text. */
  readonly redact: (text: string) => string;
  readonly texts: ServerTexts;
}

/**
 * Reads a hub of this process. The hub starts its servers when the reader's client connects. The documents are made as
 * for the control API, but without HTTP.
 */
export function localHubReader(
  { hub, manifest, redact, texts }: LocalHub,
  { mode, signal, ...options }: HubReaderOptions,
): HubReader {
  let connecting: Promise<HubClient> | undefined;
  const limits = { modes: () => (mode === undefined ? [] : [mode]), hasOperatorMode: false };
  const { serverInfo } = hub;
  const accept: ClientAcceptor["accept"] = (transport, ending) =>
    hub.accept(transport, ending, { limits });
  const client = (): Promise<HubClient> =>
    (connecting ??= HubClient.connect({ serverInfo, accept }, signal, options));
  const checkMode = (): void => {
    const known = hub.modes.map(({ name }) => name);
    if (mode === undefined || known.includes(mode)) return;
    throw new HubError("notFound", `There is no mode "${mode}".${suggestName(mode, known)}`);
  };
  const checkServer = (server: string | undefined): void => {
    const names = manifest.servers.map(({ name }) => name);
    if (server === undefined || names.includes(server)) return;
    throw new HubError("notFound", `There is no server "${server}".${suggestName(server, names)}`);
  };
  const redacted = <T>(document: T): T => redactTexts(document, redact) as T;
  return {
    client,
    servers: async () =>
      redacted(
        await Promise.all(
          manifest.servers.map((spec) =>
            describeServer(hub, () => statusOf(spec, hub), spec, texts),
          ),
        ),
      ),
    catalog: async () => {
      checkMode();
      return redacted(
        mode === undefined ? catalogDocument(hub.catalog) : catalogDocumentOfMode(hub, mode),
      );
    },
    async find(query, request) {
      checkMode();
      checkQuery(query);
      const { server } = request;
      checkServer(server);
      return redacted(foundToolsDocument(await hub.findTools(query, { ...request, mode })));
    },
    async exposureCosts() {
      checkMode();
      return redacted(await hub.exposureCosts(mode));
    },
    async tool(name) {
      const item = (await (await client()).listTools()).find(({ key }) => key === name);
      const route = hub.catalog.tools.find(name);
      if (item === undefined || route === undefined) return undefined;
      const definition = JSON.parse(textOf(item.bytes)) as ToolDefinitionDocument["definition"];
      return redacted({ name, server: route.server, tool: route.remoteName, definition });
    },
    async findings(server) {
      checkServer(server);
      await hub.scanned.settled();
      return redacted(hub.scanned.list(server));
    },
    async pins(server) {
      checkServer(server);
      const all = await hub.pinned.list();
      const own = all.filter((each) => server === undefined || each.server === server);
      return redacted(own.map(pinsDocument));
    },
    async list(kind) {
      if (kind !== "skills") return (await client()).list(kind);
      // The reader's client is a legacy one, which lists no skills.
      const { entries } = (mode === undefined ? hub.catalog : hub.catalogOfMode(mode)).skills;
      return entries.flatMap(({ bytes }) => readItem(bytes, "skills") ?? []);
    },
    async close() {
      // A client that could not connect has nothing to disconnect.
      const connected = await connecting?.catch(() => undefined);
      await connected?.close();
    },
  };
}

/** The status of a server of the manifest, also of one that the hub does not have because a command left it out. */
function statusOf(spec: ServerSpec, hub: Hub): ServerStatus {
  if (!isRunnable(spec) || !spec.enabled) return unusableStatusOf(spec);
  return hub.status().find(({ server }) => server === spec.name) ?? unusableStatusOf(spec);
}
