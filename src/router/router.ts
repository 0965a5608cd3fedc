import type { Edit, Piece, Range } from "../bytes.ts";
import { HubError } from "../errors.ts";
import type { CancelledBy } from "../events.ts";
import { lastMember, type Member, scanObject, stringOf } from "../json.ts";
import type { Member as PluginMember } from "../plugin/member.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { PluginSet } from "../plugin/set.ts";
import { readTokens } from "../upstream/notice.ts";
import type { Withdrawal } from "../upstream/pending.ts";
import type { View } from "../upstream/view.ts";
import { readId } from "../wire/id.ts";
import type { Request } from "../wire/jsonrpc.ts";
import { type Call, type Caller, RelayedCall } from "./call.ts";
import type { Deadlines } from "./deadline.ts";
import { InterceptedCall } from "./intercepted.ts";
import type { Ledger } from "./ledger.ts";
import { Search } from "./search.ts";

/** Where the router looks. */
export interface RouterParts {
  readonly view: View;
  readonly deadlines: Deadlines;
  readonly ledger: Ledger;
  /** Those in force; undefined if there are none. */
  plugins(): PluginSet | undefined;
  /** The plugin whose calls these are, which does not see them itself. */
  readonly except: PluginMember | undefined;
}

/** Finds the way of one client's calls: the only parse of their params, the only look-up. */
export class Router {
  /** Whose calls they are. */
  client: ClientInfo;
  readonly #parts: RouterParts;

  constructor(client: ClientInfo, parts: RouterParts) {
    this.client = client;
    this.#parts = parts;
  }

  /**
   * Finds the way of a `tools/call` request; it has not begun to run.
   * @throws {HubError} invalidParams or unknownTool
   */
  route(request: Request, caller: Caller): Running {
    const { deadlines } = this.#parts;
    const params = readParams(request);
    const began = deadlines.now();
    const call = this.#find(request, params, caller, began);
    if (call !== undefined) return call;
    const { name } = params;
    const missing = this.#parts.view.explainAbsence(name);
    const connections = this.#parts.view.unlisted(name);
    if (connections.length === 0) throw missing;
    const timeout = Math.max(...connections.map(({ spec }) => spec.callTimeout));
    const find = (): Call | undefined => this.#find(request, params, caller, began);
    const parts = { request, caller, name, connections, find, missing, began, timeout, deadlines };
    return new Search(parts);
  }

  #find(request: Request, params: CallParams, caller: Caller, began: number): Call | undefined {
    const { view, deadlines, ledger } = this.#parts;
    const route = view.catalog.tools.find(params.name);
    const connection = route && view.connection(route.server);
    if (route === undefined || connection === undefined) return undefined;
    const edits: Edit[] = [];
    for (const { key, start, end } of params.members) {
      if (key === "name") edits.push({ start, end, by: route.remoteNameJson });
    }
    const parts = {
      request,
      route,
      rewrite: { edits, tokens: params.tokens },
      token: params.token,
      caller,
      connection,
      began,
      deadlines,
      ledger,
    };
    const plugins = this.#parts.plugins();
    const way = plugins?.way(route, connection.spec.isolation);
    if (plugins === undefined || way === undefined) return new RelayedCall(parts);
    const { client } = this;
    const { except } = this.#parts;
    const { members } = params;
    return new InterceptedCall(parts, { plugins, way, client, except, members });
  }
}

/** Something that a client's request has set going. */
export interface Running {
  run(): void;
  cancel(why: Withdrawal, by: CancelledBy): void;
  /** The call, once it is known which one it is. */
  readonly call: Call | undefined;
}

interface CallParams {
  readonly name: string;
  readonly members: readonly Member[];
  readonly tokens: readonly Range[];
  readonly token: Piece | undefined;
}

function readParams(request: Request): CallParams {
  const { bytes, params } = request;
  const members = request.members ?? (params && scanObject(bytes, params.start)?.items);
  if (members === undefined) {
    throw new HubError("invalidParams", "tools/call needs params: an object with a name.");
  }
  const name = stringOf(bytes, lastMember(members, "name"));
  if (name === undefined) {
    throw new HubError("invalidParams", "tools/call needs the name of a tool in its params.");
  }
  const args = lastMember(members, "arguments");
  if (args !== undefined && bytes[args.start] !== OPEN_BRACE && bytes[args.start] !== NULL_START) {
    throw new HubError("invalidParams", "The arguments of tools/call must be an object.");
  }
  const tokens = readTokens(bytes, members);
  const last = tokens.at(-1);
  return {
    name,
    members,
    tokens,
    token: last && readId(bytes, last)?.slice,
  };
}
const OPEN_BRACE = 0x7b;
const NULL_START = 0x6e;
