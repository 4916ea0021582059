// Opened from the file system a page may start no worker, which the search runs in: a hidden frame takes its place.
if (location.protocol === "file:") {
  globalThis.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.IFrameWorker = true;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const src of urls) await this.load(inside, src);
      };
      this.inside = this.load(inside, url).then(() => inside);
    }
    load(inside, src) {
      return new Promise((resolve, reject) => {
        const script = Object.assign(inside.document.createElement("script"), {
          src,
          onload: resolve,
          onerror: reject,
        });
        inside.document.head.append(script);
      });
    }
    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
  globalThis.Worker = globalThis.IFrameWorker;
}
