/** A message that has arrived from NATS. */
export interface BusMessage {
  readonly subject: string;
  /** The subject to which the sender wants the answer; "": none. */
  readonly reply: string;
  /** Not used by anybody else: a receiver may keep it. */
  readonly data: Uint8Array;
  /** The value of a header; "" if there is none. The name is compared as it is written. */
  header(name: string): string;
  /** Whether NATS itself answers, because nobody has subscribed to the subject of a message with a reply. */
  readonly hasNoResponders: boolean;
}

/** The headers of a message to send, in order. Values are plain ASCII without line breaks. */
export type BusHeaders = readonly (readonly [name: string, value: string])[];

export interface PublishOptions {
  readonly reply?: string;
  readonly headers?: BusHeaders;
}

/** What happens to the connection to NATS. */
export type BusEvent =
  | { readonly kind: "disconnected" }
  | { readonly kind: "reconnected" }
  /** NATS does not permit this connection to publish or to subscribe to a subject. */
  | {
      readonly kind: "denied";
      readonly operation: "publish" | "subscribe";
      readonly subject: string;
    }
  /** A defect in the handling of a message. */
  | { readonly kind: "fault"; readonly error: unknown }
  /** The connection is over, and is not made again. */
  | { readonly kind: "closed"; readonly reason: string };

/**
 * One connection to NATS, shared by all that a hub exports and imports. While it is interrupted, up to 16 MiB of
 * messages are kept and sent afterwards; what was on its way is lost. NATS delivers each message at most once.
 */
export interface Bus {
  /** The largest message with its headers, in bytes (`max_payload` of the NATS server). */
  readonly maxPayload: number;
  /** Whether the NATS server asks for credentials. Only then the users that subjects name are believed. */
  readonly isAuthenticated: boolean;
  readonly isConnected: boolean;
  /** The NATS server that is connected, as `host:port`. */
  readonly server: string;
  /** The beginning of the subjects of answers to this connection; nobody else gets what is sent there. */
  readonly inbox: string;
  publish(subject: string, data: Uint8Array, options?: PublishOptions): void;
  /**
   * @param queue the name of a group of which only one member gets each message
   * @returns a function that ends the subscription. That nobody has subscribed to a subject is told to one subscription
   * of the connection that asked, even if several match the subject of the answer
   */
  subscribe(subject: string, receive: (message: BusMessage) => void, queue?: string): () => void;
  /** Asks the NATS server for an answer. @returns the time that it takes, in ms; never settles before it answers */
  roundTrip(): Promise<number>;
  /** @returns a function that ends this */
  onEvent(listener: (event: BusEvent) => void): () => void;
  /** Sends what is waiting, and disconnects, within a limited time. */
  close(): Promise<void>;
}
