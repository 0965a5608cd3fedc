import type { LogLevel } from "../base/hub-events.ts";

/*
 * Recordings of the messages between a hub and its servers and clients, and their replay.
 * Main types: `Recorder` writes a recording, `ExchangeMatcher` and `replayServer` replay it. Start here with
 * the format.
 *
 * A recording is a text file with one JSON object per line, so that any tool can search and split it. A
 * message is embedded in its line byte for byte, not as a string: number spelling (1.0), key order and
 * duplicate members are kept.
 */

/** The first line of the file. */
export interface RecordingHeader {
  /** Version of the file format. */
  readonly recording: 1;
  /** The writing program: `toolmux 0.2.0`. */
  readonly program: string;
  /** Start time, ISO 8601. All other times (`t`) are in ms since then. */
  readonly started: string;
  /** Maximum size of the file, in bytes. */
  readonly limit: number;
}

/** The peer of a transport. Each start of a server is a new run; clients are numbered. */
export type RecordedPeer =
  { readonly server: string; readonly run: number } | { readonly client: number };

/** The direction of a message, as seen from the hub. */
export type Direction = "sent" | "received";

/** Recorded in place of a message that is too large or cannot be masked; identifies the message. */
export interface Placeholder {
  /** The message's size, in bytes. */
  readonly size: number;
  readonly kind: string;
  readonly id?: string | number | undefined;
  readonly method?: string | undefined;
}

/** A transport event other than a message. */
export type TransportEventLine =
  | { readonly event: "opening" }
  | { readonly event: "closed"; readonly by: "hub" | "peer"; readonly cause: string }
  | {
      readonly event: "log";
      readonly level: LogLevel;
      readonly source: "stderr" | "stdout";
      readonly text: string;
    }
  /** A received message exceeded the transport's limit. */
  | ({ readonly event: "oversized" } & Placeholder)
  /** A request will not be answered, although the transport is still open. */
  | { readonly event: "lost"; readonly id?: string | number | undefined; readonly cause: string }
  /** A request was abandoned: its response is no longer needed, and its stream was closed. */
  | { readonly event: "abandoned"; readonly id?: string | number | undefined }
  /** The hub rejected a request of a client. */
  | { readonly event: "refused"; readonly cause: string };

/** An event of the recorder itself. */
export type RecorderEventLine =
  /** Messages that are missing in the recording, because they came faster than they could be written. */
  | { readonly event: "missing"; readonly messages: number; readonly bytes: number }
  /** The last line: the size limit is reached. */
  | { readonly event: "full"; readonly limit: number }
  /** The last line: the hub was closed. */
  | { readonly event: "end" };
