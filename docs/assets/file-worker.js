// The search of the theme runs in a worker, which browsers do not start from a page on the disk. There an empty frame of the same
// page runs its script instead; messages go to and fro as events.
(() => {
  if (location.protocol !== "file:") return;
  class FileWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "Search";
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const page = this.frame.contentDocument;
      page.open();
      page.write("<!doctype html><title>Search</title><body></body>");
      page.close();
      inside.postMessage = (data) => setTimeout(() => this.tell(new MessageEvent("message", { data })));
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.ready = this.load(new URL(url, location.href).href);
    }
    load(url) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = url;
      return new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.body.append(script);
      });
    }
    tell(event) {
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = FileWorker;
  window.Worker = FileWorker;
})();
