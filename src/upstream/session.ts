import { applyEdits, utf8 } from "../bytes.ts";
import { type Item, readPage } from "../catalog/item.ts";
import { type ConnectStep, HubError } from "../errors.ts";
import { lastMember, scanObject, stringOf, valueOf } from "../json.ts";
import {
  allowsBatches,
  type Implementation,
  initializeParams,
  isLegacyVersion,
  type LegacyVersion,
  Method,
} from "../protocol/legacy.ts";
import { readEdges } from "../wire/frame.ts";
import {
  buildError,
  buildNotification,
  buildRequest,
  buildResult,
  editsOf,
  type Frame,
  type Notification,
  type Request,
  type Response,
} from "../wire/jsonrpc.ts";
import type { Link, LinkEvents } from "../wire/link.ts";
import { type Pending, PendingTable, type Rewrite, type Withdrawal } from "./pending.ts";

/** What a session tells its connection. */
export interface SessionEvents {
  toolsChanged(): void;
  log(level: "debug" | "info" | "warn", source: "stderr" | "stdout" | "server", text: string): void;
  closed(cause: HubError): void;
}

const EMPTY_RESULT = utf8("{}");
/** A listing with more pages, or more bytes in all of them, is one that never ends. */
const MAX_LISTING = { pages: 1000, bytes: 64 * 1024 * 1024 };
/** A server's own requests are not answered while it has not taken so many bytes. */
const MAX_UNREAD = 16 * 1024 * 1024;

/** MCP spoken with one server over an open Link, in the legacy dialect: the handshake, the table of pending requests, the listings. */
export class Session implements LinkEvents {
  readonly server: string;
  readonly #link: Link;
  readonly #events: SessionEvents;
  readonly #pending: PendingTable;
  #version: LegacyVersion | undefined;
  #offersTools = false;
  readonly #complaints = new Set<string>();

  constructor(server: string, link: Link, events: SessionEvents) {
    this.server = server;
    this.#link = link;
    this.#events = events;
    this.#pending = new PendingTable(server, link);
  }

  /** Opens the link and shakes hands (lifecycle, initialization); `linked` is called between the two. @throws {HubError} handshakeFailed, or what the link says. */
  async open(clientInfo: Implementation, signal: AbortSignal, linked: () => void): Promise<void> {
    await this.#link.open(this, signal);
    linked();
    const response = await this.ask(Method.initialize, initializeParams(clientInfo), signal);
    const result = this.#result(response, "handshake") as {
      protocolVersion?: unknown;
      capabilities?: { tools?: unknown };
    } | null;
    if (!isLegacyVersion(result?.protocolVersion)) {
      const found = JSON.stringify(result?.protocolVersion) ?? "none";
      throw this.#failure("handshake", `answered with the unknown protocol version ${found}`);
    }
    this.#version = result.protocolVersion;
    this.#offersTools = typeof result.capabilities?.tools === "object";
    this.#link.send(buildNotification(Method.initialized));
  }

  /** Every tool of the server, all pages; a listing that never ends is cut. @throws {HubError} handshakeFailed at step `list`, or the link's end. */
  async listTools(signal: AbortSignal): Promise<readonly Item[]> {
    if (!this.#offersTools) return [];
    const items: Item[] = [];
    const cursors = new Set<string>();
    let size = 0;
    let cursor: string | undefined;
    for (;;) {
      const params = cursor === undefined ? undefined : { cursor };
      const response = await this.ask(Method.toolsList, params, signal);
      if (response.outcome === "error") this.#result(response, "list");
      const page = readPage(response.bytes, response.body, "tools");
      if (page === undefined) throw this.#failure("list", "sent a list of tools that is malformed");
      if (page.unnamed > 0) {
        this.#events.log("warn", "server", `${page.unnamed} tools without a name were left out.`);
      }
      for (const item of page.items) items.push(item);
      size += response.bytes.length;
      cursor = page.nextCursor;
      if (cursor === undefined) return items;
      const full = cursors.size === MAX_LISTING.pages || size > MAX_LISTING.bytes;
      if (full || cursors.has(cursor)) {
        this.#events.log("warn", "server", "The list of tools never ends; it was cut.");
        return items;
      }
      cursors.add(cursor);
    }
  }

  /** Sends a client's request on under an id of the session's own. @returns that id, for `cancel`. */
  relay(record: Pending, request: Request, { edits, tokens }: Rewrite): number {
    const id = this.#pending.nextId();
    const by = String(id);
    for (const { start, end } of tokens) edits.push({ start, end, by });
    for (const { start, end } of request.ids) edits.push({ start, end, by });
    this.#pending.send(id, record, applyEdits(request.bytes, edits));
    return id;
  }

  /** Asks something of the hub's own; cancelled with the signal. @throws {HubError} cancelled, or the link's end. */
  ask(method: string, params: object | undefined, signal: AbortSignal): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const abort = (): void => {
        // The handshake is never cancelled (cancellation, behavior requirements).
        if (method === Method.initialize) this.#pending.drop(id);
        else this.cancel(id, "The hub gave up.");
        reject(signal.reason);
      };
      const end = <T>(finish: (value: T) => void, value: T): void => {
        signal.removeEventListener("abort", abort);
        finish(value);
      };
      const id = this.#pending.nextId();
      signal.addEventListener("abort", abort, { once: true });
      this.#pending.send(
        id,
        {
          method,
          settle: (response) => end(resolve, response),
          fail: (error) => end(reject, error),
          progress: () => {},
        },
        buildRequest(id, method, params),
      );
    });
  }

  /** Forgets a request and tells the server. Whoever waits for it is not called any more. */
  cancel(id: number, why: Withdrawal): void {
    if (!this.#pending.drop(id)) return;
    if (typeof why === "string") {
      const params = { requestId: id, reason: why };
      this.#link.send(buildNotification(Method.cancelled, params));
      return;
    }
    this.#link.send(applyEdits(why.notification.bytes, editsOf(why.ids, String(id))));
  }

  pause(): void {
    this.#link.pause();
  }

  resume(): void {
    this.#link.resume();
  }

  /** Fails everything pending and ends the link, bounded in time. */
  close(): Promise<void> {
    this.#pending.fail(
      new HubError("serverStopped", `Server "${this.server}" was stopped.`, {
        server: this.server,
      }),
    );
    return this.#link.close();
  }

  frame(frame: Frame): void {
    switch (frame.kind) {
      case "response":
        this.#settle(frame);
        return;
      case "notification":
        this.#notified(frame);
        return;
      case "request":
        this.#asked(frame);
        return;
      case "batch":
        if (allowsBatches(this.#version)) for (const item of frame.items) this.frame(item);
        else this.#complain("A batch was dropped: this revision has none.");
        return;
      case "invalid":
        this.#complain(`A message was dropped: ${frame.reason}.`);
    }
  }

  log(level: "debug" | "info" | "warn" | "error", source: "stderr" | "stdout", text: string): void {
    this.#events.log(level === "error" ? "warn" : level, source, text);
  }

  oversized(head: Buffer, tail: Buffer, size: number): void {
    const edges = readEdges(head, tail);
    const text = `Server "${this.server}" sent a message of ${size} bytes, which is over the limit (maxMessage).`;
    const id = edges?.kind === "response" ? Number(edges.id.key) : undefined;
    const pending = id === undefined ? undefined : this.#pending.take(id);
    if (pending === undefined) this.#events.log("warn", "stdout", text);
    else pending.fail(new HubError("messageTooLarge", text, { server: this.server }));
  }

  /** What a server does not read is bounded where it is sent: by the table of what is pending, and in `#asked`. */
  pressure(): void {}

  closed(cause: HubError): void {
    this.#pending.fail(cause);
    this.#events.closed(cause);
  }

  /** Said once: who does it once does it often. */
  #complain(text: string): void {
    if (this.#complaints.has(text)) return;
    this.#complaints.add(text);
    this.#events.log("warn", "stdout", text);
  }

  #settle(response: Response): void {
    const record = response.id === undefined ? undefined : this.#pending.take(response.id);
    if (record !== undefined) record.settle(response);
    // An answer after a cancel is usual; one that nobody asked for is the server's mistake.
    else this.#events.log("debug", "stdout", "An answer that nobody waits for was dropped.");
  }

  #asked(request: Request): void {
    // Who goes on asking and reads no answer would have them pile up here without end.
    if (this.#link.queued > MAX_UNREAD) return;
    if (request.method === Method.ping) {
      this.#link.send(buildResult(request.id.slice, EMPTY_RESULT));
      return;
    }
    const text = `toolmux cannot answer "${request.method}".`;
    this.#link.send(buildError(request.id.slice, new HubError("methodNotFound", text).toRpc()));
  }

  #notified(notification: Notification): void {
    switch (notification.method) {
      case Method.progress:
        this.#progressed(notification);
        return;
      case Method.toolsListChanged:
        this.#events.toolsChanged();
        return;
      case Method.message:
        this.#logged(notification);
    }
  }

  #progressed(notification: Notification): void {
    const { bytes, params } = notification;
    const members = params && scanObject(bytes, params.start)?.items;
    const tokens = members?.filter((member) => member.key === "progressToken") ?? [];
    const token = tokens.at(-1);
    const id = token === undefined ? undefined : Number(valueOf(bytes, token));
    if (id !== undefined) this.#pending.get(id)?.progress(notification, tokens);
  }

  #logged({ bytes, params }: Notification): void {
    const members = (params && scanObject(bytes, params.start)?.items) ?? [];
    const data = lastMember(members, "data");
    if (data === undefined) return;
    const text = stringOf(bytes, data) ?? JSON.stringify(valueOf(bytes, data));
    this.#events.log("debug", "server", text.slice(0, 2000));
  }

  /** The parsed result of an answer to the hub itself. */
  #result(response: Response, step: ConnectStep): unknown {
    let value: unknown;
    try {
      value = valueOf(response.bytes, response.body);
    } catch {
      throw this.#failure(step, "sent an answer that is malformed");
    }
    if (response.outcome === "result") return value;
    const message = (value as { message?: unknown } | null)?.message;
    throw this.#failure(step, `answered with an error: ${String(message)}`);
  }

  #failure(step: ConnectStep, what: string): HubError {
    return new HubError("handshakeFailed", `Server "${this.server}" ${what}.`, {
      server: this.server,
      step,
    });
  }
}
