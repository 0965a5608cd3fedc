import { Buffer } from "node:buffer";
import { type Piece, utf8 } from "../bytes.ts";
import { type ErrorCode, HubError, toHubError } from "../errors.ts";
import { lastMember, type Member, scanObject, stringOf } from "../json.ts";
import {
  allowsBatches,
  type Implementation,
  initializeResult,
  type LegacyVersion,
  Method,
  negotiate,
} from "../protocol/legacy.ts";
import type { ClientInfo } from "../plugin/plugin.ts";
import type { Call, Caller } from "../router/call.ts";
import type { Router, Running } from "../router/router.ts";
import type { View } from "../upstream/view.ts";
import { readEdges } from "../wire/frame.ts";
import { readId } from "../wire/id.ts";
import {
  type Batch,
  buildError,
  buildNotification,
  buildResult,
  type Frame,
  type Message,
  type Notification,
  type Request,
} from "../wire/jsonrpc.ts";
import type { Link, LinkEvents } from "../wire/link.ts";

/** What a client needs of the hub. */
export interface Host {
  readonly serverInfo: Implementation;
  /** The client does not read (or does again): nothing more should come in for it. */
  pressure(client: Client, full: boolean): void;
  left(client: Client): void;
}

type Cancellable = Pick<Running, "cancel" | "call">;

/** Takes the answer to one request, or undefined if none may be sent. */
type Respond = (message: Message | undefined) => void;

const EMPTY_RESULT = utf8("{}");
const LIST_CHANGED = buildNotification(Method.toolsListChanged);

/** One downstream session of the legacy era, on whatever Link: answers for the hub and routes what is for a server. */
export class Client implements LinkEvents {
  readonly #link: Link;
  readonly #host: Host;
  readonly #view: View;
  readonly #router: Router;
  /** What runs, by the key of the client's id. */
  readonly #running = new Map<string | number, Asked>();
  #version: LegacyVersion | undefined;
  /** The list that the client was last given or told about. */
  #known: Uint8Array | undefined;

  constructor(link: Link, host: Host, view: View, router: Router) {
    this.#link = link;
    this.#host = host;
    this.#view = view;
    this.#router = router;
  }

  /** Its calls that run. */
  get calls(): readonly Call[] {
    return [...this.#running.values()].flatMap(({ running }) => running?.call ?? []);
  }

  /** The catalog was replaced: tells the client if the list that it has is not the list that there is. */
  catalogChanged(): void {
    const { toolsResult } = this.#view.catalog;
    if (this.#known === undefined || Buffer.compare(this.#known, toolsResult) === 0) return;
    this.#known = toolsResult;
    this.#link.send(LIST_CHANGED);
  }

  frame(frame: Frame): void {
    switch (frame.kind) {
      case "request":
        this.#accept(frame, this.#send);
        return;
      case "notification":
        this.#notified(frame);
        return;
      case "response":
        // The hub asks its clients nothing, so nobody waits for it.
        return;
      case "batch":
        this.#batch(frame);
        return;
      case "invalid":
        this.#refuse(frame.id?.slice, frame.code, `Not a JSON-RPC request: ${frame.reason}.`);
    }
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    const edges = readEdges(head, tail);
    if (edges?.kind === "response") return;
    const text = `The message of ${size} bytes is over the limit.`;
    this.#refuse(edges?.id.slice, "messageTooLarge", text);
  }

  log(): void {}

  pressure(full: boolean): void {
    // A client that does not read gets no more work done for it either.
    if (full) this.#link.pause();
    else this.#link.resume();
    this.#host.pressure(this, full);
  }

  /** The client is gone: whatever runs for it is cancelled at its servers. */
  closed(): void {
    for (const asked of this.#running.values())
      asked.running?.cancel("The client has left.", "disconnect");
    this.#running.clear();
    this.#view.close();
    this.#host.left(this);
  }

  readonly #send: Respond = (message) => {
    if (message !== undefined) this.#link.send(message);
  };

  #refuse(id: Piece | undefined, code: ErrorCode, text: string): void {
    this.#link.send(buildError(id, new HubError(code, text).toRpc()));
  }

  #accept(request: Request, respond: Respond): void {
    try {
      this.#dispatch(request, respond);
    } catch (error) {
      respond(buildError(request.id.slice, toHubError(error).toRpc()));
    }
  }

  #dispatch(request: Request, respond: Respond): void {
    switch (request.method) {
      case Method.toolsCall:
        this.#callTool(request, respond);
        return;
      case Method.toolsList:
        this.#listTools(request, respond);
        return;
      case Method.initialize:
        this.#initialize(request, respond);
        return;
      case Method.ping:
        respond(buildResult(request.id.slice, EMPTY_RESULT));
        return;
      default:
        throw new HubError("methodNotFound", `There is no method "${request.method}".`);
    }
  }

  #initialize(request: Request, respond: Respond): void {
    const members = request.params && scanObject(request.bytes, request.params.start)?.items;
    const requested = stringOf(request.bytes, lastMember(members ?? [], "protocolVersion"));
    if (requested === undefined) {
      throw new HubError("invalidParams", "initialize needs a protocolVersion.");
    }
    this.#version = negotiate(requested);
    this.#router.client = { ...this.#router.client, ...readClientInfo(request, members) };
    const result = initializeResult(this.#version, this.#host.serverInfo);
    respond(buildResult(request.id.slice, utf8(JSON.stringify(result))));
    this.#view.open();
  }

  #listTools(request: Request, respond: Respond): void {
    const { bytes, params, id } = request;
    const members = (params && scanObject(bytes, params.start)?.items) ?? [];
    if (lastMember(members, "cursor") !== undefined) {
      throw new HubError("invalidParams", "The cursor is not one of this hub's.");
    }
    const asked = new Asked(id.key, respond, this.#running, this.#link);
    this.#register(asked);
    this.#view.open();
    const forget = this.#view.whenListed((catalog) => {
      this.#known = catalog.toolsResult;
      asked.respond(buildResult(id.slice, catalog.toolsResult));
    });
    asked.running = {
      call: undefined,
      cancel: () => {
        forget();
        asked.respond(undefined);
      },
    };
  }

  #callTool(request: Request, respond: Respond): void {
    this.#view.open();
    const asked = new Asked(request.id.key, respond, this.#running, this.#link);
    const running = this.#router.route(request, asked);
    asked.running = running;
    this.#register(asked);
    running.run();
  }

  #register(asked: Asked): void {
    if (this.#running.has(asked.key)) {
      throw new HubError("invalidRequest", "A request with this id is still running.");
    }
    this.#running.set(asked.key, asked);
  }

  #notified(notification: Notification): void {
    if (notification.method !== Method.cancelled) return;
    const { bytes, params } = notification;
    const members = (params && scanObject(bytes, params.start)?.items) ?? [];
    const ids = members.filter((member) => member.key === "requestId");
    const last = ids.at(-1);
    const id = last && readId(bytes, last);
    if (id !== undefined)
      this.#running.get(id.key)?.running?.cancel({ notification, ids }, "client");
  }

  /** Answers a batch with one array, when all of its requests are answered (2025-03-26, JSON-RPC batching). */
  #batch({ items }: Batch): void {
    if (!allowsBatches(this.#version)) {
      this.#refuse(undefined, "invalidRequest", "This protocol revision has no batches.");
      return;
    }
    const answers: Message[] = [];
    let waiting = items.length;
    const done: Respond = (message) => {
      if (message !== undefined) answers.push(message);
      if (--waiting === 0 && answers.length > 0) this.#link.send(joinBatch(answers));
    };
    for (const item of items) {
      if (item.kind === "request") {
        this.#accept(item, done);
      } else if (item.kind === "invalid") {
        const error = new HubError(item.code, `Not a JSON-RPC request: ${item.reason}.`);
        done(buildError(item.id?.slice, error.toRpc()));
      } else {
        this.frame(item);
        done(undefined);
      }
    }
  }
}

/** One request of a client while it runs: takes its answer, and takes it off the list of what runs. */
class Asked implements Caller {
  readonly key: string | number;
  running: Cancellable | undefined;
  readonly #respond: Respond;
  readonly #list: Map<string | number, Asked>;
  readonly #link: Link;

  constructor(
    key: string | number,
    respond: Respond,
    list: Map<string | number, Asked>,
    link: Link,
  ) {
    this.key = key;
    this.#respond = respond;
    this.#list = list;
    this.#link = link;
  }

  respond(message: Message | undefined): void {
    this.#list.delete(this.key);
    this.#respond(message);
  }

  notify(message: Message): void {
    this.#link.send(message);
  }
}

/** What the client says of itself; whatever is no text is left out. */
function readClientInfo(
  { bytes }: Request,
  params: readonly Member[] = [],
): Pick<ClientInfo, "name" | "version"> {
  const info = lastMember(params, "clientInfo");
  const members = (info && scanObject(bytes, info.start)?.items) ?? [];
  const say = (key: string): string | undefined =>
    stringOf(bytes, lastMember(members, key))?.slice(0, LONGEST_NAME);
  return { name: say("name"), version: say("version") };
}
/** In UTF-16 units; what is longer is no name. */
const LONGEST_NAME = 200;

function joinBatch(answers: readonly Message[]): Message {
  const pieces = answers.flatMap((answer, i) => [
    i === 0 ? BATCH_START : BATCH_COMMA,
    ...(answer instanceof Uint8Array ? [answer] : answer),
  ]);
  return [...pieces, BATCH_END];
}
const BATCH_START = utf8("[");
const BATCH_COMMA = utf8(",");
const BATCH_END = utf8("]");
