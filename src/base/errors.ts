import { reasonIn } from "./quote.ts";

/**
 * The codes of all errors that toolmux itself can make, with their properties. A response from an upstream server, also
 * an error response, is never a HubError: it is relayed unchanged.
 *
 * - `rpc`: the JSON-RPC error code that a client gets. toolmux's own codes are outside of -32768…-32000, as MCP
 *   requires.
 * - `exit`: the exit code of a command that ends with the error.
 * - `retryable`: the same request may succeed later without any change.
 * - `kind`: terminal (somebody must change something), transient (may go away by itself), misuse (the caller's error).
 * - `http`: the HTTP status of an answer of the control API or the dashboard; default: 400 for misuse, else 409.
 *
 * For a request to an HTTP server that got no response, `notDelivered` means that it was certainly not executed and may
 * be sent again, `answerLost` that it may have been executed. `answerInvalid`: a server has answered with bytes that
 * are no JSON-RPC response, or no JSON. `storeBroken`: a secret store is unusable; `storeBusy`:
 * another process holds its lock. `hubLoop`: a hub would start itself. `hubNotRunning`: no hub of this user runs, or
 * the hub that a request was sent to has ended. `accessDenied`: the caller may not use the dashboard. `serverInvalid`:
 * a server's table in the manifest is invalid. `notApproved`: a person has denied a call, or nobody could be asked;
 * models get this error as a result, with the code in `_meta`. `modelFailed`: a request to a language model failed;
 * `data.reason` says why. `agentLoop`: an agent would run inside a run of itself; `agentDepth`: agents would run inside
 * each other too deeply. The limits of a run each have a code: `turnLimit`, `toolCallLimit`, `repeatedCalls`,
 * `tokenLimit`, `runTimeout`. `sessionBusy`: too many messages wait for an agent's session; `sessionNotFound`: the
 * client has no such session; `sessionsFull`: no more sessions are allowed; `hubBusy`: too many runs wait;
 * `overLimit`: a call exceeds a limit of the manifest (`limits`); models get this error as a result, and
 * `data.retryAfterMs` says when it may be tried again. It shares its `rpc` with `notApproved`.
 * `limitReached`: the code that clients get for any limit of a run or a session; `notIdentified`: the client cannot be
 * told apart from others, and asks for something that belongs to a single client. `notInMode`: the client's mode hides
 * the requested item. `notAccepted`: the requested tool or prompt is not what
 * was accepted of its server (pins). `notTrusted`: a file or an agent may be used only after the user has trusted it.
 * `outputFailed`: stdout cannot be written, for example because the disk is full. `digestMismatch`: the bytes that a registry sent do not have the expected digest. `notFound`: a
 * request to a running hub names something that is not there; `conflict`: the request comes too late.
 */
const ERROR_PROPERTIES = {
  parseError: { rpc: -32700, exit: 2, retryable: false, kind: "misuse" },
  invalidRequest: { rpc: -32600, exit: 2, retryable: false, kind: "misuse" },
  methodNotFound: { rpc: -32601, exit: 2, retryable: false, kind: "misuse" },
  invalidParams: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  unknownTool: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  unknownPrompt: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  unknownResource: { rpc: -32002, exit: 2, retryable: false, kind: "misuse" },
  notReadOnly: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  notAccepted: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  notInMode: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  invalidEnvelope: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  headerMismatch: { rpc: -32020, exit: 2, retryable: false, kind: "misuse" },
  missingCapability: { rpc: -32021, exit: 2, retryable: false, kind: "misuse" },
  unsupportedVersion: { rpc: -32022, exit: 2, retryable: false, kind: "misuse" },
  internal: { rpc: -32603, exit: 1, retryable: false, kind: "terminal", http: 500 },
  usage: { rpc: -32603, exit: 2, retryable: false, kind: "misuse" },
  notFound: { rpc: -32603, exit: 2, retryable: false, kind: "misuse", http: 404 },
  conflict: { rpc: -32603, exit: 2, retryable: false, kind: "misuse", http: 409 },
  manifestInvalid: { rpc: -32603, exit: 2, retryable: false, kind: "misuse" },
  hubLoop: { rpc: -31010, exit: 2, retryable: false, kind: "terminal" },
  hubNotRunning: { rpc: -31001, exit: 3, retryable: false, kind: "terminal", http: 404 },
  accessDenied: { rpc: -31020, exit: 2, retryable: false, kind: "misuse", http: 401 },
  valueMissing: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  serverInvalid: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  storeBroken: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  storeBusy: { rpc: -31001, exit: 3, retryable: true, kind: "transient" },
  notSupported: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  commandNotFound: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  notExecutable: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  spawnFailed: { rpc: -31001, exit: 3, retryable: true, kind: "transient" },
  handshakeFailed: { rpc: -31001, exit: 3, retryable: true, kind: "transient" },
  connectTimeout: { rpc: -31001, exit: 3, retryable: true, kind: "transient" },
  unreachable: { rpc: -31001, exit: 3, retryable: true, kind: "transient" },
  tlsFailed: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  serverRefused: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  serverFailed: { rpc: -31001, exit: 3, retryable: true, kind: "transient" },
  unauthorized: { rpc: -31008, exit: 3, retryable: false, kind: "terminal" },
  serverStopped: { rpc: -31001, exit: 3, retryable: false, kind: "terminal" },
  connectionLost: { rpc: -31002, exit: 3, retryable: true, kind: "transient" },
  notDelivered: { rpc: -31002, exit: 3, retryable: true, kind: "transient" },
  answerLost: { rpc: -31002, exit: 3, retryable: true, kind: "transient" },
  notReading: { rpc: -31002, exit: 3, retryable: true, kind: "transient" },
  notResponding: { rpc: -31002, exit: 3, retryable: true, kind: "transient" },
  callTimeout: { rpc: -31003, exit: 124, retryable: true, kind: "transient" },
  messageTooLarge: { rpc: -31004, exit: 1, retryable: false, kind: "terminal", http: 413 },
  answerInvalid: { rpc: -31004, exit: 1, retryable: false, kind: "terminal" },
  pluginFailed: { rpc: -31006, exit: 1, retryable: false, kind: "terminal" },
  notAsked: { rpc: -31007, exit: 1, retryable: false, kind: "terminal" },
  notApproved: { rpc: -31019, exit: 1, retryable: false, kind: "terminal" },
  overLimit: { rpc: -31019, exit: 1, retryable: true, kind: "transient" },
  notRecorded: { rpc: -31009, exit: 1, retryable: false, kind: "terminal" },
  modelFailed: { rpc: -31011, exit: 1, retryable: false, kind: "terminal" },
  agentNotFound: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  agentInvalid: { rpc: -31012, exit: 2, retryable: false, kind: "terminal" },
  agentLoop: { rpc: -31013, exit: 1, retryable: false, kind: "terminal" },
  agentDepth: { rpc: -31013, exit: 1, retryable: false, kind: "terminal" },
  turnLimit: { rpc: -31014, exit: 1, retryable: false, kind: "terminal" },
  toolCallLimit: { rpc: -31014, exit: 1, retryable: false, kind: "terminal" },
  repeatedCalls: { rpc: -31014, exit: 1, retryable: false, kind: "terminal" },
  tokenLimit: { rpc: -31014, exit: 1, retryable: false, kind: "terminal" },
  runTimeout: { rpc: -31014, exit: 124, retryable: true, kind: "transient" },
  sessionBusy: { rpc: -31015, exit: 1, retryable: true, kind: "transient" },
  sessionNotFound: { rpc: -32602, exit: 2, retryable: false, kind: "misuse" },
  sessionsFull: { rpc: -31015, exit: 1, retryable: true, kind: "transient" },
  hubBusy: { rpc: -31015, exit: 1, retryable: true, kind: "transient" },
  limitReached: { rpc: -31014, exit: 1, retryable: false, kind: "terminal" },
  notIdentified: { rpc: -31018, exit: 1, retryable: false, kind: "terminal" },
  notTrusted: { rpc: -31016, exit: 2, retryable: false, kind: "terminal" },
  digestMismatch: { rpc: -31017, exit: 3, retryable: false, kind: "terminal" },
  outputFailed: { rpc: -32603, exit: 1, retryable: false, kind: "terminal" },
  cancelled: { rpc: -31005, exit: 130, retryable: false, kind: "misuse" },
} as const satisfies Record<string, ErrorCodeProperties>;

export interface ErrorCodeProperties {
  readonly rpc: number;
  readonly exit: 1 | 2 | 3 | 124 | 130;
  readonly retryable: boolean;
  readonly kind: "terminal" | "transient" | "misuse";
  readonly http?: HttpErrorStatus;
}

type HttpErrorStatus = 400 | 401 | 404 | 409 | 413 | 500;

export type ErrorCode = keyof typeof ERROR_PROPERTIES;

/** The phase of connecting that failed. */
export type ConnectPhase = "resolve" | "spawn" | "dial" | "authorize" | "handshake" | "list";

export interface ErrorDetails {
  /** The server (manifest key) that the error is about. */
  readonly server?: string | undefined;
  readonly step?: ConnectPhase | undefined;
  /** The last lines of the server's stderr, oldest first. */
  readonly stderr?: readonly string[] | undefined;
  readonly uri?: string | undefined;
  /** Advice on what to do next, for people: a full sentence or several lines. */
  readonly hint?: string | undefined;
  /** Further members for the JSON-RPC error's `data`, as MCP defines them for some errors. */
  readonly data?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/**
 * Key in the `_meta` of error results that the hub itself made; its value is the error code. It distinguishes the hub's
 * errors from a tool's own errors.
 */
export const ERROR_META_KEY = "toolmux/error";

/** Key in the `_meta` of such results: when the call may be tried again, in ms from then. */
export const RETRY_META_KEY = "toolmux/retryAfterMs";

/** The one error class of toolmux. Messages are complete sentences for people and never contain a secret. */
export class HubError extends Error {
  override readonly name = "HubError";
  readonly code: ErrorCode;
  readonly server: string | undefined;
  readonly step: ConnectPhase | undefined;
  readonly stderr: readonly string[];
  readonly uri: string | undefined;
  readonly hint: string | undefined;
  readonly data: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.server = details.server;
    this.step = details.step;
    this.stderr = details.stderr ?? [];
    this.uri = details.uri;
    this.hint = details.hint;
    this.data = details.data;
  }

  static isCode(code: string): code is ErrorCode {
    return Object.hasOwn(ERROR_PROPERTIES, code);
  }

  /** The same error with changed texts, such as redacted ones. A changed error loses its `cause`. */
  mapTexts(change: (text: string) => string): HubError {
    const message = change(this.message);
    const stderr = this.stderr.map(change);
    const hint = this.hint === undefined ? undefined : change(this.hint);
    const isTextSame = message === this.message && hint === this.hint;
    const isSame = isTextSame && stderr.every((line, at) => line === this.stderr[at]);
    if (isSame) return this;
    const { server, step, uri, data } = this;
    return new HubError(this.code, message, { server, step, stderr, uri, data, hint });
  }

  /** The same error without the lines of its server. */
  withoutStderr(): HubError {
    if (this.stderr.length === 0) return this;
    const { server, step, uri, data, hint, cause } = this;
    return new HubError(this.code, this.message, { server, step, uri, data, hint, cause });
  }

  get properties(): ErrorCodeProperties {
    return ERROR_PROPERTIES[this.code];
  }

  /** The status with which the control API and the dashboard answer. */
  get httpStatus(): HttpErrorStatus {
    const { http, kind } = this.properties;
    return http ?? (kind === "misuse" ? 400 : 409);
  }

  /** The `error` member of a JSON-RPC response: `{code, message, data: {code, server?, step?, uri?, stderr?, …}}`. */
  toRpc(): RpcError {
    return {
      code: this.properties.rpc,
      message: this.message,
      data: {
        code: this.code,
        ...(this.server !== undefined && { server: this.server }),
        ...(this.step !== undefined && { step: this.step }),
        ...(this.uri !== undefined && { uri: this.uri }),
        ...(this.stderr.length > 0 && { stderr: this.stderr }),
        ...this.data,
      },
    };
  }
}

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

/** The members of a peer's JSON-RPC error; a member that is missing or has another type is undefined. */
export interface PeerError {
  readonly code: number | undefined;
  /** The text for people, which may also be under another key, or be the whole error. */
  readonly message: string | undefined;
  readonly data: unknown;
  /** The error of a hub, if the error is one: it has a code of `ERROR_PROPERTIES` and the JSON-RPC code of that. */
  readonly hubError: HubError | undefined;
}

/** Reads the `error` of a peer's JSON-RPC response, which may be any JSON value. Never throws. */
export function readPeerError(error: unknown): PeerError {
  const members = isRecord(error) ? error : {};
  const code = typeof members["code"] === "number" ? members["code"] : undefined;
  const message = reasonIn(error);
  const { data } = members;
  const details = isRecord(data) ? data : {};
  const own = details["code"];
  let hubError: HubError | undefined;
  if (typeof own === "string" && HubError.isCode(own) && ERROR_PROPERTIES[own].rpc === code) {
    const stderr = Array.isArray(details["stderr"]) ? details["stderr"].map(String) : [];
    hubError = new HubError(own, message ?? "The hub gave no reason.", { stderr });
  }
  return { code, message, data, hubError };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * The error for a request whose answer cannot be read.
 * @param reason what is wrong, as a clause: `the result is not one JSON value`
 * @param said the answer, as `saidByPeer` quotes it
 */
export function invalidAnswerError(server: string, reason: string, said = ""): HubError {
  const text = `Server "${server}" sent an answer that cannot be read: ${reason}${said}.`;
  return new HubError("answerInvalid", text, { server });
}

/** The error for a write to stdout that the system has refused. */
export function outputFailedError(cause: unknown): HubError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const text = `The output could not be written to stdout: ${reason.replace(/\.$/, "")}.`;
  return new HubError("outputFailed", text, { cause });
}

/** Converts anything thrown to a HubError; other errors become `internal`. Never throws. */
export function toHubError(thrown: unknown): HubError {
  try {
    if (thrown instanceof HubError) return thrown;
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    return new HubError("internal", message, { cause: thrown });
  } catch {
    return new HubError("internal", "Something was thrown that cannot be described.");
  }
}

/** The text of an unexpected exception, with the place where it was thrown, for the log. */
export function describeFault(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const lines = (error.stack ?? "").split("\n").map((line) => line.trim());
  const place = lines.find((line) => line.startsWith("at "));
  return `${error.name}: ${error.message}${place === undefined ? "" : ` (${place})`}`;
}

/** Whether an error comes from the operating system, such as a missing permission for a folder. */
export function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

/** An error as a document: `{error: {code, message, server?, step?, stderr?, hint?}}`. */
export function errorDocument(error: HubError): object {
  const { code, message, server, step, stderr, hint } = error;
  const words = stderr.length > 0 ? stderr : undefined;
  return { error: { code, message, server, step, stderr: words, hint } };
}

/**
 * Makes a `usage` error.
 * @param hint full sentences or lines to print instead of the pointer to the command's help
 */
export function usageError(message: string, hint?: string): HubError {
  return new HubError("usage", message, { hint });
}
