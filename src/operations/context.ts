/**
 * operations/: what toolmux does for a person, as functions that take typed input and return a document. They print
 * nothing and read no command line: a command reads its options, calls an operation and prints its document; the
 * control API of a hub calls the same operation and sends its document. One file for each verb: `check.ts`, `import.ts`,
 * `install-in-client.ts`, `login.ts`, `secrets.ts`, `search.ts`, `try-server.ts`, `add.ts`, `remove.ts`, `trust.ts`, `share.ts`, `service.ts`. Main types:
 * `OperationContext`, below; the documents that programs get (`documents.ts`). Start here, then read `check.ts`.
 */
import type { SystemEnvironment } from "../base/paths.ts";

/**
 * The system that an operation runs on, and the signal that ends the operation.
 */
export interface OperationContext extends SystemEnvironment {
  /** Aborted with a HubError (`cancelled`). */
  readonly signal: AbortSignal;
  /** Receives remarks for people that are no part of a document. */
  note?(text: string): void;
}

/** The manifests that an operation works on. */
export interface ManifestChoice {
  /** The files, in order: the last one that has a server wins. If there are none, the user's manifests are found. */
  readonly config: readonly string[];
}
