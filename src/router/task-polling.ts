import { type Edit, makeSlice, type Piece, utf8 } from "../base/bytes.ts";
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
} from "../protocol/tasks.ts";
import type { ClientDeclaration } from "../upstream/profile.ts";
import type { Session } from "../upstream/session.ts";
import { cancelServerTask, type OpenTask, readCreatedModernTask } from "../upstream/tasks.ts";
import {
  type InputRoundOptions,
  type InputRoundsOptions,
  InputRounds,
  readInputs,
  requestInputs,
  responseOfBytes,
  type UnfinishedResult,
} from "./input-required.ts";

export interface TaskPollingOptions extends InputRoundOptions {
  readonly sender: ClientDeclaration;
  /** The task has made progress: restarts the call's timeout. */
  restartTimeout(): void;
  /** The call's response. */
  onResponse(response: Response): void;
  fail(error: HubError): void;
}

/** Polling interval in ms: lower and upper bound of the server's `pollIntervalMs`, and the default. */
const POLL_INTERVAL = { min: 250, max: 30_000, default: 1000 };

/** Polls a task that a server created for a call until it ends, for a client that does not support tasks. */
export class TaskPolling implements OpenTask {
  readonly #session: Session;
  readonly #options: TaskPollingOptions;
  /**
   * Keys of inputs that were already requested from the client: the server may repeat them until it has processed the
   * answer.
   */
  readonly #requestedKeys = new Set<string>();
  readonly #abort = new AbortController();
  #taskId = "";
  #isOver = false;
  #cancelInputs: () => void = () => {};
  #pollNow: () => void = () => {};

  constructor(session: Session, options: TaskPollingOptions) {
    this.#session = session;
    this.#options = options;
  }

  /** @param answer the result that announced the task */
  start(answer: Response): void {
    const created = readCreatedModernTask(answer);
    if (created === undefined) {
      this.#options.fail(
        this.#protocolError("has made a task of the call, but does not say which."),
      );
      return;
    }
    this.#taskId = created.task.id;
    const { modernTasks } = this.#session.subscriptions ?? {};
    modernTasks?.add(this);
    void this.#poll(created.status).then(
      (final) => this.#finish(() => this.#options.onResponse(final)),
      (error: unknown) => this.#finish(() => this.#options.fail(toHubError(error))),
    );
  }

  /** The call is over: cancels the task at the server. */
  cancel(): void {
    if (this.#isOver || this.#taskId === "") return;
    this.#close();
    this.#cancelInputs();
    cancelServerTask(this.#session, this.#taskId);
  }

  /** The next poll shows whether the task still exists after the end of its session. */
  onSessionLost(): void {
    this.#pollNow();
  }

  /** Polls the task until it ends. @returns the call's response */
  async #poll(status: ModernTaskStatus): Promise<Response> {
    let { fingerprint, interval } = status;
    // Only the status contains input requests, so it is polled at once.
    let pollsAtOnce = status.isOver || status.status === "input_required";
    for (;;) {
      if (!pollsAtOnce) await this.#wait(interval);
      const response = await this.#fetchStatus();
      if (response.outcome === "error") return response;
      const current = readModernTaskStatus(bodyOf(response));
      if (current.isOver) return this.#finalResponse(response, current);
      if (current.fingerprint !== fingerprint) this.#options.restartTimeout();
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
      const cancelTimer = this.#options.deadlines.after(ms, wake);
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
      ? new HubError("cancelled", `Server "${this.#options.server}" has cancelled the call.`)
      : this.#protocolError(`has brought the call to its end, but does not say to which.`);
  }

  /**
   * Sends the server's input requests to the client.
   * @returns whether there were new ones
   */
  async #requestInputs(response: Response): Promise<boolean> {
    const required = readInputs(bodyOf(response));
    const inputs = (required?.inputs ?? []).filter(({ key }) => !this.#requestedKeys.has(key));
    if (required === undefined || inputs.length === 0) return false;
    for (const { key } of inputs) this.#requestedKeys.add(key);
    try {
      const answers = await new Promise<ReadonlyMap<string, Uint8Array>>((answered, failed) => {
        this.#cancelInputs = requestInputs(
          this.#options,
          { ...required, inputs },
          { onAnswered: answered, onFailed: failed },
        );
      });
      await this.#sendAnswers(answers);
    } catch (error) {
      if (!this.#isOver) cancelServerTask(this.#session, this.#taskId);
      throw error;
    }
    return true;
  }

  /** Sends `tasks/update` with the client's answers, byte for byte. */
  #sendAnswers(answers: ReadonlyMap<string, Uint8Array>): Promise<void> {
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
    const { info, declaredCapabilities } = this.#options.sender;
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
    this.#session.subscriptions?.modernTasks.delete(this);
    this.#abort.abort(new HubError("cancelled", "The call is over."));
  }

  #protocolError(what: string): HubError {
    const { server } = this.#options;
    return new HubError("internal", `Server "${server}" ${what}`, { server });
  }
}

/** The options of an unfinished call. */
export type UnfinishedCallOptions = InputRoundsOptions & Omit<TaskPollingOptions, "sender">;

/**
 * Continues a call whose modern server has not completed it yet: the server requires input, has created a task, or
 * requires a client with the tasks extension.
 */
export class UnfinishedCall {
  /** What further requests declare to the server about the client. */
  sender: ClientDeclaration;
  readonly #options: UnfinishedCallOptions;
  #inputRounds: InputRounds | undefined;
  #taskPolling: TaskPolling | undefined;

  constructor(options: UnfinishedCallOptions) {
    this.#options = options;
    this.sender = options.caller.sender;
  }

  /** The edits that add the client's answers to its request. */
  get edits(): readonly Edit[] {
    return this.#inputRounds?.edits ?? NO_EDITS;
  }

  continueCall(session: Session, unfinished: UnfinishedResult): void {
    switch (unfinished.kind) {
      case "inputRequired":
        this.#inputRounds ??= new InputRounds(this.#options);
        this.#inputRounds.start(unfinished);
        return;
      case "tasksRequired":
        this.sender = { ...this.sender, hubPollsTasks: true };
        this.#options.resend();
        return;
      case "task":
        this.#pollTask(session, unfinished.response);
    }
  }

  /** The server has completed the call. */
  finish(): void {
    this.#inputRounds?.finish();
  }

  /** The call is over. */
  cancel(): void {
    this.#inputRounds?.cancel();
    this.#taskPolling?.cancel();
  }

  #pollTask(session: Session, created: Response): void {
    this.#taskPolling = new TaskPolling(session, { ...this.#options, sender: this.sender });
    this.#taskPolling.start(created);
  }
}

const NO_EDITS: readonly Edit[] = [];
