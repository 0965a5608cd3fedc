import { utf8 } from "../base/bytes.ts";
import type { Clock } from "../base/clock.ts";
import { HubError, toHubError } from "../base/errors.ts";
import { JsonObject } from "../base/json.ts";
import { buildNotification, type Response } from "../jsonrpc/message.ts";
import { Method } from "../protocol/legacy.ts";
import type { AuthChallenge, AuthorizationProgress } from "../transport/http/target.ts";
import {
  type ClientChannel,
  type ClientRequest,
  type ConnectionClients,
  onlyClientOf,
  type ServerRequestTarget,
  type ServerRequest,
} from "./profile.ts";

export interface AuthorizationRun {
  readonly signal: AbortSignal;
  onProgress(progress: AuthorizationProgress): void;
}

/**
 * Obtains authorization for a server, by a login of the user if needed.
 * @throws {HubError} unauthorized, or the signal's reason
 */
export type AuthorizeFunction = (challenge: AuthChallenge, run: AuthorizationRun) => Promise<void>;

export interface AuthorizationRunnerOptions {
  readonly clock: Clock;
  readonly server: string;
  /** Obtains an authorization; undefined if the hub cannot obtain any. */
  readonly authorize: AuthorizeFunction | undefined;
  /** Resolves when somebody wants the server; undefined if that is so already. Before that, no authorization begins. */
  untilWanted(): Promise<void> | undefined;
  onProgress(progress: AuthorizationProgress): void;
  onAuthorized(): void;
  /**
   * Called when authorization failed.
   * @param isFor401 whether the server answered with status 401, so that no request works without authorization
   */
  onDenied(cause: HubError, isFor401: boolean): void;
}

/** The time limit of one run, including the user's login, in ms. */
const AUTHORIZATION_TIMEOUT = 120_000;
/**
 * Time after a failed run in which no new run begins unless the user asks for one, in ms. `MAX_UNPROVEN_GRANTS` applies
 * to the same period.
 */
const RETRY_PAUSE = 60_000;
/**
 * Maximum number of grants within `RETRY_PAUSE` that the server has not accepted. Two, because a server that has
 * changed its authorization server may reject the first grant.
 */
const MAX_UNPROVEN_GRANTS = 2;

/** Runs the authorizations of one server, one at a time, and refuses new ones for a while after a failure. */
export class AuthorizationRunner {
  readonly #options: AuthorizationRunnerOptions;
  /** Aborts the run in progress. */
  #current: AbortController | undefined;
  #lastFailure: { readonly cause: HubError; readonly at: number } | undefined;
  /**
   * Times at which grants were obtained that no successful connection has confirmed yet, in ms of the clock.
   */
  #unprovenGrants: readonly number[] = [];

  constructor(options: AuthorizationRunnerOptions) {
    this.#options = options;
  }

  /** Begins a run. Its result is reported later through the options' callbacks. */
  begin(challenge: AuthChallenge): void {
    const isFor401 = challenge.status === 401;
    const error = this.#refusalError(isFor401);
    if (error === undefined) void this.#run(challenge, isFor401);
    else queueMicrotask(() => this.#options.onDenied(error, isFor401));
  }

  /** Aborts the run, because the user has declined the login. The options' callbacks report the failure. */
  decline(text: string): void {
    this.#current?.abort(this.#error(text));
  }

  /** Aborts the run without reporting a result. */
  abort(): void {
    this.#current?.abort(this.#error("The authorization was given up."));
    this.#current = undefined;
  }

  /** Resets the count of unproven grants. Called when the server has accepted the authorization. */
  onAccepted(): void {
    this.#unprovenGrants = [];
  }

  /** Forgets earlier failures, because the user has asked for a new attempt. */
  clearFailures(): void {
    this.#lastFailure = undefined;
    this.#unprovenGrants = [];
  }

  async #run(challenge: AuthChallenge, isFor401: boolean): Promise<void> {
    const { clock, authorize } = this.#options;
    const controller = new AbortController();
    this.#current = controller;
    const isCurrent = (): boolean => this.#current === controller;
    const wanted = this.#options.untilWanted();
    if (wanted !== undefined) {
      await wanted;
      if (!isCurrent()) return;
    }
    const text = `Nobody authorized it within ${AUTHORIZATION_TIMEOUT / 1000} seconds.`;
    const cancelTimer = clock.after(AUTHORIZATION_TIMEOUT, () =>
      controller.abort(this.#error(text)),
    );
    try {
      await authorize?.(challenge, {
        signal: controller.signal,
        onProgress: (progress) => {
          if (isCurrent()) this.#options.onProgress(progress);
        },
      });
      if (!isCurrent()) return;
      this.#current = undefined;
      if (isFor401) this.#unprovenGrants = [...this.#unprovenGrants, clock.now()];
      this.#options.onAuthorized();
    } catch (error) {
      if (!isCurrent()) return;
      this.#current = undefined;
      const cause = toHubError(error);
      this.#lastFailure = { cause, at: clock.now() };
      this.#options.onDenied(cause, isFor401);
    } finally {
      cancelTimer();
    }
  }

  #refusalError(isFor401: boolean): HubError | undefined {
    const { authorize, clock } = this.#options;
    if (authorize === undefined) return this.#error("The hub has none that it accepts.");
    const since = clock.now() - RETRY_PAUSE;
    if (this.#lastFailure !== undefined && this.#lastFailure.at > since)
      return this.#lastFailure.cause;
    if (isFor401 && this.#unprovenGrants.filter((at) => at > since).length >= MAX_UNPROVEN_GRANTS) {
      return this.#error("It has rejected the authorization that was just obtained.");
    }
    return undefined;
  }

  #error(text: string): HubError {
    const { server } = this.#options;
    const message = `Server "${server}" wants an authorization. ${text}`;
    return new HubError("unauthorized", message, { server, step: "authorize" });
  }
}

export interface LoginElicitationOptions {
  readonly server: string;
  readonly clients: ConnectionClients;
  /**
   * Returns the first request that waits for the server; undefined if no request waits, or if requests of several
   * clients wait.
   */
  clientRequest(): ClientRequest | undefined;
  /** Called when the user has declined the login. */
  onDeclined(): void;
}

/** Asks the user of a client, by URL elicitation, to open the login page of a server. */
export class LoginElicitation {
  readonly #options: LoginElicitationOptions;
  #url: string | undefined;
  #cancelRequest: (() => void) | undefined;
  /** The client whose user has agreed to open the login page, and the `elicitationId`. */
  #accepted: { readonly channel: ClientChannel; readonly id: string } | undefined;

  constructor(options: LoginElicitationOptions) {
    this.#options = options;
  }

  /** Sends the elicitation if the clients support URL elicitation and it is clear which client needs the login. */
  send(url: string): void {
    if (url === this.#url) return;
    this.end();
    this.#url = url;
    const { clients } = this.#options;
    if (clients.capabilities.elicitation?.url === undefined) return;
    const clientRequest = this.#options.clientRequest();
    const onlyClient = onlyClientOf(clients);
    const target = clientRequest ?? onlyClient;
    const channel = clientRequest?.channel ?? onlyClient;
    // Before the login, the server's items may be unknown: then the client is asked, as it may see some of them.
    if (channel?.sees(this.#options.server) === false) return;
    if (target !== undefined) this.#sendElicitation(target, channel, url);
  }

  /**
   * Ends the elicitation, because the login is over: cancels it if the user has not answered; if the user has agreed,
   * tells the client that the elicitation is complete.
   */
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
      // If the elicitation fails, the login goes on, because the user may open the page in another way.
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
    const action = JsonObject.of(body).string("action");
    if (action === "decline") this.#options.onDeclined();
    else if (action === "accept" && channel !== undefined) this.#accepted = { channel, id };
  }
}
