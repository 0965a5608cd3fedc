import { toHubError } from "../base/errors.ts";
import type { FaceHub } from "../frontend/http/server.ts";
import type { Taker } from "../frontend/modern/clients.ts";
import type { WayBack } from "../frontend/modern/wayback.ts";
import type { Peer } from "./format.ts";
import type { Recorder } from "./recorder.ts";
import { recordInbound, recordLink } from "./recorded-transport.ts";

/** The same hub for an HTTP face, with all that its clients say and hear written down. */
export function recordFace(hub: FaceHub, recorder: Recorder): FaceHub {
  return {
    accept: (link, signal, scope) =>
      hub.accept(recordLink(link, recorder.client(), recorder), signal, scope),
    status: () => hub.status(),
    createModernClients: (client) => recordTaker(hub.createModernClients(client), recorder),
    activePlugins: { serve: (plugin, request) => hub.activePlugins.serve(plugin, request) },
  };
}

/** Nothing says which of these requests come from the same client, so each counts as one. */
function recordTaker(taker: Taker, recorder: Recorder): Taker {
  return {
    take: (letter, way, scope, check) => {
      const peer = recorder.client();
      recorder.frame(peer, letter.request);
      try {
        taker.take(letter, recordWay(way, peer, recorder), scope, check);
      } catch (error) {
        recorder.event(peer, { event: "refused", cause: toHubError(error).message });
        throw error;
      }
    },
    stop: () => taker.stop(),
    close: () => taker.close(),
  };
}

function recordWay(way: WayBack, peer: Peer, recorder: Recorder): WayBack {
  return {
    ...recordInbound(way, peer, recorder),
    isPipe: way.isPipe,
    whenGone: (callback) =>
      way.whenGone((why, by) => {
        recorder.event(peer, { event: "abandoned" });
        callback(why, by);
      }),
  };
}
