import { Buffer } from "node:buffer";
import { type Piece, utf8 } from "../bytes.ts";
import { type ErrorCode, HubError, toHubError } from "../errors.ts";
import { lastMember, scanObject } from "../json.ts";
import {
  allowsBatches,
  type Implementation,
  initializeResult,
  type LegacyVersion,
  Method,
} from "../protocol/legacy.ts";
import type { Call } from "../router/call.ts";
import type { Router } from "../router/router.ts";
import type { Attendee } from "../upstream/audience.ts";
import type { View } from "../upstream/view.ts";
import { readEdges } from "../wire/frame.ts";
import { readId } from "../wire/id.ts";
import {
  type Batch,
  buildError,
  buildNotification,
  buildResult,
  type Frame,
  type Invalid,
  type Message,
  type Notification,
  type Request,
} from "../wire/jsonrpc.ts";
import type { Exchange, Inbound, Link, LinkEvents } from "../wire/link.ts";
import { Asked } from "./asked.ts";
import { joinBatch } from "./batch.ts";
import { readIntroduction } from "./introduction.ts";

/** What a client needs of the hub. */
export interface Host {
  readonly serverInfo: Implementation;
  /** The client does not read (or does again): nothing more should come in for it. */
  pressure(client: Client, full: boolean): void;
  left(client: Client): void;
}

const EMPTY_RESULT = utf8("{}");
const LIST_CHANGED = buildNotification(Method.toolsListChanged);

/** One downstream session of the legacy era, on whatever Link: answers for the hub and routes what is for a server. */
export class Client implements LinkEvents, Attendee {
  readonly #link: Link;
  readonly #host: Host;
  readonly #view: View;
  readonly #router: Router;
  readonly #isGuest: boolean;
  /** The way back of a link that has only one. */
  readonly #whole: Inbound;
  /** What runs, by the key of the client's id. */
  readonly #running = new Map<string | number, Asked>();
  #version: LegacyVersion | undefined;
  /** The list that the client was last given or told about. */
  #known: Uint8Array | undefined;

  /** @param isGuest it is never asked anything, and uses the servers as others do */
  constructor(link: Link, host: Host, view: View, router: Router, isGuest: boolean) {
    this.#isGuest = isGuest;
    this.#link = link;
    this.#whole = {
      notify: (message) => void link.send(message),
      respond: (message) => void (message === undefined || link.send(message)),
    };
    this.#host = host;
    this.#view = view;
    this.#router = router;
  }

  /** Its calls that run. */
  get calls(): readonly Call[] {
    return [...this.#running.values()].flatMap(({ call }) => call ?? []);
  }

  /** The catalog was replaced: tells the client if the list that it has is not the list that there is. */
  catalogChanged(): void {
    const { toolsResult } = this.#view.catalog;
    if (this.#known === undefined || Buffer.compare(this.#known, toolsResult) === 0) return;
    this.#known = toolsResult;
    this.#link.send(LIST_CHANGED);
  }

  frame(frame: Frame, _?: Exchange, inbound: Inbound = this.#whole): void {
    switch (frame.kind) {
      case "request":
        this.#accept(frame, inbound);
        return;
      case "notification":
        this.#notified(frame);
        return;
      case "response":
        // The hub asks its clients nothing, so nobody waits for it.
        return;
      case "batch":
        this.#batch(frame, inbound);
        return;
      case "invalid":
        inbound.respond(refusal(frame.id?.slice, frame.code, explain(frame)));
    }
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    const edges = readEdges(head, tail);
    if (edges?.kind === "response") return;
    const text = `The message of ${size} bytes is over the limit.`;
    this.#whole.respond(refusal(edges?.id.slice, "messageTooLarge", text));
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

  #accept(request: Request, inbound: Inbound): void {
    try {
      this.#dispatch(request, inbound);
    } catch (error) {
      inbound.respond(buildError(request.id.slice, toHubError(error).toRpc()));
    }
  }

  #dispatch(request: Request, inbound: Inbound): void {
    switch (request.method) {
      case Method.toolsCall:
        this.#callTool(request, inbound);
        return;
      case Method.toolsList:
        this.#listTools(request, inbound);
        return;
      case Method.initialize:
        this.#initialize(request, inbound);
        return;
      case Method.ping:
        inbound.respond(buildResult(request.id.slice, EMPTY_RESULT));
        return;
      default:
        throw new HubError("methodNotFound", `There is no method "${request.method}".`);
    }
  }

  #initialize(request: Request, inbound: Inbound): void {
    const { version, capabilities, info } = readIntroduction(request);
    this.#version = version;
    this.#router.client = { ...this.#router.client, ...info };
    const result = initializeResult(version, this.#host.serverInfo);
    inbound.respond(buildResult(request.id.slice, utf8(JSON.stringify(result))));
    if (this.#isGuest) this.#view.open();
    else this.#view.introduce(capabilities, this);
  }

  #listTools(request: Request, inbound: Inbound): void {
    const { bytes, params, id } = request;
    const members = (params && scanObject(bytes, params.start)?.items) ?? [];
    if (lastMember(members, "cursor") !== undefined) {
      throw new HubError("invalidParams", "The cursor is not one of this hub's.");
    }
    const asked = new Asked(id.key, inbound, this.#running);
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

  #callTool(request: Request, inbound: Inbound): void {
    this.#view.open();
    const asked = new Asked(request.id.key, inbound, this.#running);
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
  #batch({ items }: Batch, inbound: Inbound): void {
    if (!allowsBatches(this.#version)) {
      const text = "This protocol revision has no batches.";
      inbound.respond(refusal(undefined, "invalidRequest", text));
      return;
    }
    const answers: Message[] = [];
    let waiting = items.length;
    const each: Inbound = {
      notify: (message) => inbound.notify(message),
      respond: (message) => {
        if (message !== undefined) answers.push(message);
        if (--waiting > 0) return;
        inbound.respond(answers.length > 0 ? joinBatch(answers) : undefined);
      },
    };
    for (const item of items) {
      if (item.kind === "request" || item.kind === "invalid") {
        this.frame(item, undefined, each);
      } else {
        this.frame(item);
        each.respond(undefined);
      }
    }
  }
}

function refusal(id: Piece | undefined, code: ErrorCode, text: string): Message {
  return buildError(id, new HubError(code, text).toRpc());
}

function explain({ reason }: Invalid): string {
  return `Not a JSON-RPC request: ${reason}.`;
}
