import type { LogLevel } from "../base/events.ts";

/*
 * A recording is text, one JSON object a line, so that it can be searched and cut with any tool. A message is a value in its
 * line as it was spelled, not a string: 1.0, key order and members that are there twice are as they were, to the byte.
 */

/** The first line. */
export interface RecordingHeader {
  /** The form of the file. */
  readonly recording: 1;
  /** What has written it: `toolmux 0.1.0`. */
  readonly program: string;
  /** When, as ISO 8601 has it. All other times (`t`) are in ms from then on. */
  readonly started: string;
  /** The most that it may hold, in bytes. */
  readonly limit: number;
}

/** Whose link it is: each start of a server is a run of it; clients are counted. */
export type RecordedPeer =
  { readonly server: string; readonly run: number } | { readonly client: number };

/** As the hub sees it. */
export type Direction = "sent" | "received";

/** What stands in the place of a message that is too large, or that cannot be shown: as much as is needed to know which one it was. */
export interface Placeholder {
  /** In bytes. */
  readonly size: number;
  readonly kind: string;
  readonly id?: string | number | undefined;
  readonly method?: string | undefined;
}

/** What happened on a link that is no message. */
export type TransportEventLine =
  | { readonly event: "opening" }
  | { readonly event: "closed"; readonly by: "hub" | "peer"; readonly cause: string }
  | {
      readonly event: "log";
      readonly level: LogLevel;
      readonly source: "stderr" | "stdout";
      readonly text: string;
    }
  /** A message came that was too large for the link. */
  | ({ readonly event: "oversized" } & Placeholder)
  /** A request will not be answered, although the link lives. */
  | { readonly event: "lost"; readonly id?: string | number | undefined; readonly cause: string }
  /** Nobody waits for a request's answer any more, and its stream was closed. */
  | { readonly event: "abandoned"; readonly id?: string | number | undefined }
  /** A request was not taken. */
  | { readonly event: "refused"; readonly cause: string };

/** What happened to the recording itself. */
export type RecorderEventLine =
  /** So much is missing here, because it could not be written as fast as it came. */
  | { readonly event: "missing"; readonly messages: number; readonly bytes: number }
  /** The last line: the limit is reached. */
  | { readonly event: "full"; readonly limit: number }
  /** The last line: the hub has ended. */
  | { readonly event: "end" };
