import type { Flight } from "./flight.ts";
import type { Peer } from "./peer.ts";

/** Passes the bytes that were read from the peer, but not processed, to `flight`. */
export function catchUp(peer: Peer, flight: Flight): void {
  const rest = peer.rest();
  const { bytes, offset } = flight.room();
  rest.copy(bytes, offset);
  flight.accept(rest.length, performance.now());
}

/** Sends new calls until the maximum number is in flight. */
export function send(peer: Peer, flight: Flight): void {
  if (flight.free > 0) peer.write(flight.take(performance.now()));
}

/** Reads once from the peer. @returns the time of the read, in ms */
export function receive(peer: Peer, flight: Flight): number {
  const { bytes, offset, length } = flight.room();
  const read = peer.read(bytes, offset, length);
  const now = performance.now();
  flight.accept(read, now);
  return now;
}
