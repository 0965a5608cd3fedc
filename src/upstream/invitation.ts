import { utf8 } from "../base/bytes.ts";
import { Method } from "../protocol/legacy.ts";
import { buildNotification, type Response } from "../jsonrpc/message.ts";
import { lastMember, scanObject, readString } from "../base/json.ts";
import type { ServerRequestTarget, ServerRequest } from "./ask.ts";
import type { ClientChannel, ConnectionClients, ClientRequest } from "./audience.ts";
import { onlyClientOf } from "./audience.ts";

export interface LoginElicitationOptions {
  readonly server: string;
  readonly clients: ConnectionClients;
  /** The request that waits for the server, if all that wait are of one client. */
  clientRequest(): ClientRequest | undefined;
  /** The user has declined. */
  onDeclined(): void;
}

/** Asks the user of a client, by URL elicitation, to open the login page of a server. */
export class LoginElicitation {
  readonly #options: LoginElicitationOptions;
  #url: string | undefined;
  #cancelRequest: (() => void) | undefined;
  /** The client whose user has agreed to open the page, and the `elicitationId`. */
  #accepted: { readonly channel: ClientChannel; readonly id: string } | undefined;

  constructor(options: LoginElicitationOptions) {
    this.#options = options;
  }

  /** Sends the elicitation, if it is clear which client it concerns and clients support it. */
  send(url: string): void {
    if (url === this.#url) return;
    this.end();
    this.#url = url;
    const { clients } = this.#options;
    if (clients.capabilities.elicitation?.url === undefined) return;
    const clientRequest = this.#options.clientRequest();
    const onlyClient = onlyClientOf(clients);
    const target = clientRequest ?? onlyClient;
    if (target !== undefined)
      this.#sendElicitation(target, clientRequest?.channel ?? onlyClient, url);
  }

  /** The login is over: cancels the elicitation, or reports it complete. */
  end(): void {
    this.#url = undefined;
    this.#cancelRequest?.();
    this.#cancelRequest = undefined;
    const { server } = this.#options;
    if (this.#accepted === undefined) return;
    const { channel, id: elicitationId } = this.#accepted;
    channel.notify(server, buildNotification(Method.elicitationComplete, { elicitationId }));
    this.#accepted = undefined;
  }

  #sendElicitation(
    target: ServerRequestTarget,
    channel: ClientChannel | undefined,
    url: string,
  ): void {
    const { server } = this.#options;
    const id = crypto.randomUUID();
    const message = `[${server}] wants an authorization: open this page to let toolmux in.`;
    const paramsJson = JSON.stringify({ mode: "url", message, url, elicitationId: id }).slice(1);
    let isOver = false;
    const serverRequest: ServerRequest = {
      server,
      method: Method.elicitationCreate,
      params: (token) => [utf8(`{"_meta":{"progressToken":`), token, utf8(`},${paramsJson}`)],
      answer: (outcome: Response["outcome"], body: Uint8Array) => {
        if (isOver) return undefined;
        isOver = true;
        this.#cancelRequest = undefined;
        if (outcome === "result") this.#onResult(body, channel, id);
        return undefined;
      },
      // The user may still open the page in another way.
      fail: () => {
        isOver = true;
        this.#cancelRequest = undefined;
      },
      progress: () => {},
    };
    const cancel = target.sendServerRequest(serverRequest);
    if (!isOver) this.#cancelRequest = () => cancel("The authorization is over.");
  }

  #onResult(body: Uint8Array, channel: ClientChannel | undefined, id: string): void {
    const action = readString(body, lastMember(scanObject(body, 0)?.items ?? [], "action"));
    if (action === "decline") this.#options.onDeclined();
    else if (action === "accept" && channel !== undefined) this.#accepted = { channel, id };
  }
}
