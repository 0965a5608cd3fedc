import { makeSlice, type Piece, utf8 } from "../base/bytes.ts";
import { HubError, toHubError } from "../base/errors.ts";
import {
  bodyOf,
  buildRequestWithParams,
  buildResponse,
  joinMessage,
  type Response,
} from "../jsonrpc/message.ts";
import { parseMessage } from "../jsonrpc/parse.ts";
import {
  ModernTaskMethod,
  type ModernTaskStatus,
  readModernTaskStatus,
  readTaskReference,
} from "../protocol/tasks.ts";
import type { Session } from "../upstream/session.ts";
import { cancelTask, type OpenTask } from "../upstream/tasks.ts";
import { readInputs, requestInputs, responseOfBytes } from "./input-required.ts";
import type { UpstreamRequest } from "./upstream-request.ts";

/**
 * The poll interval, in ms: the server's `pollIntervalMs`, but at least `min` and at most `max`; `default` if the
 * server sends none.
 */
const POLL_INTERVAL = { min: 250, max: 30_000, default: 1000 };

/** Polls a task that a server created for a call until it ends, for a client that does not support tasks. */
export class TaskPolling implements OpenTask {
  readonly #session: Session;
  readonly #request: UpstreamRequest;
  /**
   * Keys of the input requests that were sent to the client. A server may list them again until it has processed the
   * answers, but the client is not asked again.
   */
  readonly #requestedKeys = new Set<string>();
  readonly #abort = new AbortController();
  #taskId = "";
  #isOver = false;
  #cancelInputs: () => void = () => {};
  #pollNow: () => void = () => {};

  constructor(session: Session, request: UpstreamRequest) {
    this.#session = session;
    this.#request = request;
  }

  /** Starts polling. @param answer the result that announced the task */
  start(answer: Response): void {
    const result = bodyOf(answer);
    const task = readTaskReference(result);
    if (task === undefined) {
      this.#request.fail(
        this.#protocolError("created a task for the call but did not give its id."),
      );
      return;
    }
    this.#taskId = task.id;
    this.#session.tasks.add(this);
    void this.#poll(readModernTaskStatus(result)).then(
      (final) => this.#finish(() => this.#request.onTaskEnded(this.#session, final)),
      (error: unknown) => this.#finish(() => this.#request.fail(toHubError(error))),
    );
  }

  cancel(): void {
    if (this.#isOver || this.#taskId === "") return;
    this.#close();
    this.#cancelInputs();
    cancelTask(this.#session, this.#taskId);
  }

  /** Polls the task at once, because the session has ended: the task may still exist. */
  onSessionLost(): void {
    this.#pollNow();
  }

  /** Does nothing: the session of a retired connection stays usable until it is closed. */
  onRetired(): void {}

  /** Polls the task until it ends. @returns the response to the call */
  async #poll(status: ModernTaskStatus): Promise<Response> {
    let { fingerprint, interval } = status;
    // The server's response to the call contains only the task's status. If the task has already ended or needs input,
    // it is polled at once to get the result or the input requests.
    let pollsAtOnce = status.isOver || status.status === "input_required";
    for (;;) {
      if (!pollsAtOnce) await this.#wait(interval);
      const response = await this.#fetchStatus();
      if (response.outcome === "error") return response;
      const current = readModernTaskStatus(bodyOf(response));
      if (current.isOver) return this.#finalResponse(response, current);
      if (current.fingerprint !== fingerprint) this.#request.clientRequest.restartTimeout();
      ({ fingerprint, interval } = current);
      pollsAtOnce = current.status === "input_required" && (await this.#requestInputs(response));
    }
  }

  #wait(interval = POLL_INTERVAL.default): Promise<void> {
    const ms = Math.min(Math.max(interval, POLL_INTERVAL.min), POLL_INTERVAL.max);
    const { signal } = this.#abort;
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        cancelTimer();
        reject(signal.reason);
      };
      const wake = (): void => {
        cancelTimer();
        signal.removeEventListener("abort", abort);
        resolve();
      };
      const cancelTimer = this.#request.clientRequest.context.deadlines.after(ms, wake);
      this.#pollNow = wake;
      signal.addEventListener("abort", abort, { once: true });
    });
  }

  #fetchStatus(): Promise<Response> {
    return this.#session.sendRequest(
      ModernTaskMethod.get,
      { taskId: this.#taskId },
      this.#abort.signal,
    );
  }

  #finalResponse(response: Response, { status }: ModernTaskStatus): Response {
    const outcome = status === "failed" ? "error" : "result";
    const { bytes } = response;
    const member = bodyOf(response).member(outcome);
    const answer =
      status === "cancelled" || member === undefined
        ? undefined
        : responseOfBytes(buildResponse("0", outcome, makeSlice(bytes, member.start, member.end)));
    if (answer !== undefined) return answer;
    throw status === "cancelled"
      ? new HubError("cancelled", `Server "${this.#session.server}" cancelled the call.`)
      : this.#protocolError(`has ended the call without a result.`);
  }

  /** Sends new input requests to the client. @returns whether there were any that it had not received before */
  async #requestInputs(response: Response): Promise<boolean> {
    const required = readInputs(bodyOf(response));
    const inputs = (required?.inputs ?? []).filter(({ key }) => !this.#requestedKeys.has(key));
    if (required === undefined || inputs.length === 0) return false;
    for (const { key } of inputs) this.#requestedKeys.add(key);
    try {
      const answers = await new Promise<ReadonlyMap<string, Uint8Array>>((answered, failed) => {
        this.#cancelInputs = requestInputs(
          this.#request,
          { ...required, inputs },
          { onAnswered: answered, onFailed: failed },
        );
      });
      await this.#sendAnswers(answers);
    } catch (error) {
      if (!this.#isOver) cancelTask(this.#session, this.#taskId);
      throw error;
    }
    return true;
  }

  /** Sends `tasks/update` with the client's answers, byte for byte. */
  #sendAnswers(answers: ReadonlyMap<string, Uint8Array>): Promise<void> {
    const { connection, clientRequest } = this.#request;
    const pinError = connection.pinError(clientRequest.route);
    if (pinError !== undefined) return Promise.reject(pinError);
    const taskId = this.#taskId;
    const pieces: Piece[] = [utf8(`{"taskId":${JSON.stringify(taskId)},"inputResponses":{`)];
    let separator = "";
    for (const [key, answer] of answers) {
      pieces.push(utf8(`${separator}${JSON.stringify(key)}:`), answer);
      separator = ",";
    }
    const method = ModernTaskMethod.update;
    const request = parseMessage(
      joinMessage(buildRequestWithParams("0", method, [...pieces, "}}"])),
    );
    const { info, declaredCapabilities } = this.#request.sender;
    const sender = {
      era: "legacy",
      info,
      declaredCapabilities,
      level: undefined,
      hubPollsTasks: true,
    } as const;
    return new Promise((resolve, fail) => {
      if (request.kind !== "request") {
        fail(this.#protocolError("asks for what cannot be answered."));
        return;
      }
      const settle = ({ outcome }: Response): void => {
        if (outcome === "result") resolve();
        else fail(this.#protocolError("did not take what it had asked for."));
      };
      const record = {
        method,
        name: taskId,
        sender,
        onResponse: settle,
        fail,
        onProgress: () => {},
      };
      this.#session.relay(record, request, { edits: [], tokens: [] });
    });
  }

  #finish(callback: () => void): void {
    if (this.#isOver) return;
    this.#close();
    callback();
  }

  #close(): void {
    this.#isOver = true;
    this.#session.tasks.delete(this);
    this.#abort.abort(new HubError("cancelled", "The call has ended."));
  }

  #protocolError(what: string): HubError {
    const { server } = this.#session;
    return new HubError("internal", `Server "${server}" ${what}`, { server });
  }
}
