import { toHubError } from "../base/errors.ts";
import type { ServedHub } from "../frontend/http/server.ts";
import type { ModernRequestTarget } from "../frontend/modern/clients.ts";
import type { ModernResponder } from "../frontend/modern/wayback.ts";
import type { RecordedPeer } from "./format.ts";
import type { Recorder } from "./recorder.ts";
import { recordResponder, recordTransport } from "./recorded-transport.ts";

/** The same hub for an HTTP face, with all that its clients say and hear written down. */
export function recordHttpServer(hub: ServedHub, recorder: Recorder): ServedHub {
  return {
    accept: (link, signal, scope) =>
      hub.accept(recordTransport(link, recorder.client(), recorder), signal, scope),
    status: () => hub.status(),
    createModernClients: (client) => recordTaker(hub.createModernClients(client), recorder),
    activePlugins: { serve: (plugin, request) => hub.activePlugins.serve(plugin, request) },
  };
}

/** Nothing says which of these requests come from the same client, so each counts as one. */
function recordTaker(taker: ModernRequestTarget, recorder: Recorder): ModernRequestTarget {
  return {
    handle: (letter, way, scope, check) => {
      const peer = recorder.client();
      recorder.frame(peer, letter.request);
      try {
        taker.handle(letter, recordWay(way, peer, recorder), scope, check);
      } catch (error) {
        recorder.event(peer, { event: "refused", cause: toHubError(error).message });
        throw error;
      }
    },
    stop: () => taker.stop(),
    close: () => taker.close(),
  };
}

function recordWay(way: ModernResponder, peer: RecordedPeer, recorder: Recorder): ModernResponder {
  return {
    ...recordResponder(way, peer, recorder),
    isPipe: way.isPipe,
    onCancel: (callback) =>
      way.onCancel((why, by) => {
        recorder.event(peer, { event: "abandoned" });
        callback(why, by);
      }),
  };
}
