import { Buffer } from "node:buffer";
import type { Kind, ListedItem } from "../catalog/listing.ts";
import { joinPieces, textOf } from "../base/bytes.ts";
import { abortable, systemClock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { isJsonObject, parseRange } from "../base/json.ts";
import {
  type ClientChannel,
  type ConnectionClients,
  NO_CLIENTS,
  type ServerRequest,
} from "../upstream/profile.ts";
import { LEGACY_PLAN } from "../upstream/negotiate.ts";
import { Subscriptions } from "../upstream/subscriptions.ts";
import { ServerTasks } from "../upstream/tasks.ts";
import { Session } from "../upstream/session.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import { type Notification, paramsOf, type Response } from "../jsonrpc/message.ts";
import type { Transport } from "../transport/transport.ts";
import { memoryTransportPair } from "../transport/memory.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { readProgressTokens } from "../protocol/notifications.ts";

/** Accepts clients; the hub implements this. */
export interface ClientAcceptor {
  readonly serverInfo: Implementation;
  accept(transport: Transport, signal: AbortSignal): Promise<void>;
}

/** The params of a progress notification, not validated: a server may send any JSON. */
export interface CallProgress {
  readonly progress?: unknown;
  readonly total?: unknown;
  readonly message?: unknown;
}

/** A form that a server shows a person (MCP, elicitation in form mode); its content is not validated. */
export interface ElicitationForm {
  readonly message: string;
  /** The `requestedSchema` of the elicitation: the JSON Schema of an object whose members are plain values. */
  readonly schema: Readonly<Record<string, unknown>>;
}

export type ElicitationAnswer =
  | { readonly action: "accept"; readonly content: Readonly<Record<string, unknown>> }
  | { readonly action: "decline" | "cancel" };

/** Shows a person a form. The signal is aborted when the answer is not needed any more. */
export type AnswerElicitation = (
  form: ElicitationForm,
  signal: AbortSignal,
) => Promise<ElicitationAnswer>;

/** Optional capabilities of a `HubClient`. */
export interface HubClientOptions {
  /** Answers elicitations; undefined: the client does not declare the capability. */
  readonly elicit?: AnswerElicitation | undefined;
}

/**
 * Makes the `ConnectionClients` of a session that has a single client. The client declares form elicitation, and
 * `elicit` answers its elicitations.
 */
function elicitationClient(elicit: AnswerElicitation): ConnectionClients {
  const channel: ClientChannel = {
    era: "legacy",
    level: undefined,
    sees: () => true,
    notify: () => {},
    sendLogMessage: () => {},
    sendServerRequest(request) {
      const withdrawn = new AbortController();
      void answerElicitation(elicit, request, withdrawn.signal);
      return () => withdrawn.abort(new HubError("cancelled", "The question was withdrawn."));
    },
  };
  return {
    era: "legacy",
    isForEverybody: false,
    capabilities: { elicitation: { form: {} } },
    current: () => [channel],
  };
}

async function answerElicitation(
  elicit: AnswerElicitation,
  request: ServerRequest,
  signal: AbortSignal,
): Promise<void> {
  try {
    const bytes = joinPieces(request.params("0") ?? ["{}"]);
    const params = JSON.parse(textOf(bytes)) as Readonly<Record<string, unknown>>;
    const { message, requestedSchema } = params;
    // Remove the server's name, which the session puts before the message: the server is the hub itself here.
    const text = String(message).replace(/^\[toolmux\] /, "");
    const schema = isJsonObject(requestedSchema) ? requestedSchema : {};
    const answer = await elicit({ message: text, schema }, signal);
    if (!signal.aborted) request.answer("result", Buffer.from(JSON.stringify(answer)));
  } catch (error) {
    if (!signal.aborted) request.fail(toHubError(error));
  }
}

/** A client of a hub: of the hub in this process, or of another hub over a transport. */
export class HubClient {
  readonly #session: Session;
  readonly #signal: AbortSignal;

  private constructor(session: Session, signal: AbortSignal) {
    this.#session = session;
    this.#signal = signal;
  }

  /**
   * Initializes a session with the hub in this process. The hub then starts its servers. When `signal` is aborted, all
   * pending requests of the client reject.
   */
  static async connect(
    hub: ClientAcceptor,
    signal: AbortSignal,
    options?: HubClientOptions,
  ): Promise<HubClient> {
    signal.throwIfAborted();
    const [clientEnd, hubEnd] = memoryTransportPair();
    // Not awaited: this promise settles only when the hub is closed, and closing the hub is up to the caller.
    void hub.accept(hubEnd, signal);
    return HubClient.open(clientEnd, hub.serverInfo, signal, options);
  }

  /**
   * Initializes a session over a transport to a hub.
   * @param info the name and version that the client sends
   */
  static async open(
    transport: Transport,
    info: Implementation,
    signal: AbortSignal,
    { elicit }: HubClientOptions = {},
  ): Promise<HubClient> {
    const session = new Session({
      server: "toolmux",
      transport,
      clients: elicit === undefined ? NO_CLIENTS : elicitationClient(elicit),
      clock: systemClock,
      subscriptions: new Subscriptions({ clock: systemClock, timeout: () => 0, warn: () => {} }),
      tasks: new ServerTasks(),
      events: { listChanged: () => {}, log: () => {}, challenged: () => {}, closed: () => {} },
    });
    await session.open(info, LEGACY_PLAN, signal, () => {});
    return new HubClient(session, signal);
  }

  /** Ends the session. */
  close(): Promise<void> {
    return this.#session.close();
  }

  listTools(signal = this.#signal): Promise<readonly ListedItem[]> {
    return this.list("tools", signal);
  }

  list(kind: Kind, signal = this.#signal): Promise<readonly ListedItem[]> {
    return this.#session.list(kind, signal);
  }

  /**
   * Calls a tool; `args` is the text of a JSON object, sent unchanged. A progress token is sent only with an
   * `onProgress`.
   * @param meta members of the params' `_meta`
   * @throws {HubError} usage if `args` is not a JSON object
   * @throws the signal's reason when the signal is aborted; the hub is sent `notifications/cancelled`
   */
  callTool(
    name: string,
    args: string,
    onProgress?: (progress: CallProgress) => void,
    signal = this.#signal,
    meta: Readonly<Record<string, unknown>> = {},
  ): Promise<Response> {
    const members = `"name":${JSON.stringify(name)},"arguments":${args}`;
    return this.#request("tools/call", name, members, onProgress, signal, meta);
  }

  /** Gets a prompt. Throws as `callTool` does. */
  getPrompt(
    name: string,
    args: Readonly<Record<string, string>>,
    onProgress?: (progress: CallProgress) => void,
  ): Promise<Response> {
    const members = `"name":${JSON.stringify(name)},"arguments":${JSON.stringify(args)}`;
    return this.#request("prompts/get", name, members, onProgress);
  }

  /** Reads a resource. Throws as `callTool` does. */
  readResource(uri: string, onProgress?: (progress: CallProgress) => void): Promise<Response> {
    return this.#request("resources/read", uri, `"uri":${JSON.stringify(uri)}`, onProgress);
  }

  /** @param members the members of the params, as JSON text */
  async #request(
    method: "tools/call" | "prompts/get" | "resources/read",
    name: string,
    members: string,
    onProgress: ((progress: CallProgress) => void) | undefined,
    signal = this.#signal,
    more: Readonly<Record<string, unknown>> = {},
  ): Promise<Response> {
    const meta = { ...more, ...(onProgress !== undefined && { progressToken: 0 }) };
    const metaJson = Object.keys(meta).length === 0 ? "" : `,"_meta":${JSON.stringify(meta)}`;
    const params = `{${members}${metaJson}}`;
    const text = `{"jsonrpc":"2.0","id":0,"method":"${method}","params":${params}}`;
    // The text is parsed as one message, so that line ends between the values of `args` do not matter.
    const parsed = parseMessage(Buffer.from(text));
    if (parsed.kind !== "request")
      throw new HubError("usage", "The arguments are not a JSON object.");
    signal.throwIfAborted();
    const answer = Promise.withResolvers<Response>();
    const record = {
      method: parsed.method,
      name,
      onResponse: (response: Response) => answer.resolve(response),
      fail: (error: HubError) => answer.reject(error),
      onProgress: ({ bytes, params: range }: Notification) => {
        if (range !== undefined) onProgress?.(parseRange(bytes, range) as CallProgress);
      },
    };
    const tokens = readProgressTokens(paramsOf(parsed));
    const id = this.#session.relay(record, parsed, { edits: [], tokens });
    const cancel = (): void => this.#session.cancel(id, "Interrupted.");
    signal.addEventListener("abort", cancel, { once: true });
    return abortable(answer.promise, signal).finally(() =>
      signal.removeEventListener("abort", cancel),
    );
  }
}
