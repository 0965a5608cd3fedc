/**
 * The stages that handle the bytes of a peer. An exception in one of them ends that peer's connection, and nothing else.
 * `line`: a line of a pipe; `httpResponse`: bytes of a server's HTTP response; `event`: a server-sent event; `httpPost`:
 * the body of a client's POST; `memory`: a message of a server in a plugin; `recording`: a message to be recorded;
 * `replay`: a message to a replayed server; `control`: a request to the control API.
 */
export type InputStage =
  "line" | "httpResponse" | "event" | "httpPost" | "memory" | "recording" | "replay" | "control";

let injected: ((stage: InputStage) => void) | undefined;

/**
 * Sets a function that is called in each stage, and may throw to stand for a defect of that stage. For tests of the
 * boundaries around the stages; the program itself sets none.
 */
export function injectFaults(fault: ((stage: InputStage) => void) | undefined): void {
  injected = fault;
}

/** Called where a stage begins to handle bytes. Does nothing unless a test injects faults. */
export function enterStage(stage: InputStage): void {
  if (injected !== undefined) injected(stage);
}
