// Points by WebGL 2: places, colors and sizes in buffers, one draw call, nothing compiled from text at run time.
//
// Points are drawn in a random order that never changes, so that the first n of them are a fair sample: while the map
// moves, as many are drawn as keep it fluent; when it rests, all.

const VERTEX = `#version 300 es
in vec2 before; in vec2 after; in vec4 color; in float size;
uniform vec2 scale; uniform vec2 shift; uniform float moved; uniform float pixels;
out vec4 shade;
void main() {
  gl_Position = vec4(mix(before, after, moved) * scale + shift, 0.0, 1.0);
  gl_PointSize = max(1.0, pixels * size * 2.0);
  shade = color;
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade; uniform float round_; out vec4 result;
void main() {
  float alpha = shade.a;
  if (round_ > 0.5) {
    float d = length(gl_PointCoord - 0.5) * 2.0;
    if (d > 1.0) discard;
    alpha *= smoothstep(1.0, 0.72, d);
  }
  result = vec4(shade.rgb * alpha, alpha);
}`;

export interface Camera { x: number; y: number; zoom: number } // the middle, and pixels per unit

export class Points {
  private gl: WebGL2RenderingContext;
  private program: WebGLProgram;
  private buffers: Record<string, WebGLBuffer> = {};
  private uniforms: Record<string, WebGLUniformLocation | null> = {};
  readonly order: Uint32Array; // place in the buffers -> image
  private top: Uint32Array = new Uint32Array(0); // drawn again above the others: places in the buffers
  private placeOf: Uint32Array;
  private topBuffer: WebGLBuffer;

  constructor(private canvas: HTMLCanvasElement, readonly count: number) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true, preserveDrawingBuffer: false });
    if (!gl) throw new Error("This browser has no WebGL 2, which the map needs.");
    this.gl = gl;
    this.program = compile(gl);
    gl.useProgram(this.program);
    this.order = shuffled(count);
    this.placeOf = new Uint32Array(count);
    this.order.forEach((image, place) => { this.placeOf[image] = place; });
    for (const [name, size, type] of [["before", 2, gl.FLOAT], ["after", 2, gl.FLOAT], ["color", 4, gl.UNSIGNED_BYTE], ["size", 1, gl.UNSIGNED_BYTE]] as const) {
      const at = gl.getAttribLocation(this.program, name);
      this.buffers[name] = gl.createBuffer()!;
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, type, type === gl.UNSIGNED_BYTE, 0, 0);
    }
    for (const name of ["scale", "shift", "moved", "pixels", "round_"]) this.uniforms[name] = gl.getUniformLocation(this.program, name);
    this.topBuffer = gl.createBuffer()!;
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.topBuffer);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  setPlaces(before: Float32Array, after: Float32Array): void {
    this.upload("before", this.pairs(before));
    this.upload("after", before === after ? this.pairs(before) : this.pairs(after));
  }

  // colors: RGB (3 N); alpha (N): 0 to 255; sizes (N): 128 is the usual size.
  setLooks(colors: Uint8Array, alpha: Uint8Array, sizes: Uint8Array, top: ArrayLike<number>): void {
    const rgba = new Uint8Array(4 * this.count), size = new Uint8Array(this.count);
    for (let place = 0; place < this.count; place++) {
      const image = this.order[place];
      rgba[4 * place] = colors[3 * image];
      rgba[4 * place + 1] = colors[3 * image + 1];
      rgba[4 * place + 2] = colors[3 * image + 2];
      rgba[4 * place + 3] = alpha[image];
      size[place] = sizes[image];
    }
    this.upload("color", rgba);
    this.upload("size", size);
    this.top = Uint32Array.from(top as ArrayLike<number>, image => this.placeOf[image]);
    this.gl.bindBuffer(this.gl.ELEMENT_ARRAY_BUFFER, this.topBuffer);
    this.gl.bufferData(this.gl.ELEMENT_ARRAY_BUFFER, this.top, this.gl.DYNAMIC_DRAW);
  }

  draw(camera: Camera, width: number, height: number, pixels: number, moved: number, most: number): void {
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const sx = 2 * camera.zoom / width, sy = 2 * camera.zoom / height;
    gl.uniform2f(this.uniforms.scale, sx, sy);
    gl.uniform2f(this.uniforms.shift, -camera.x * sx, -camera.y * sy);
    gl.uniform1f(this.uniforms.moved, moved);
    gl.uniform1f(this.uniforms.pixels, pixels);
    gl.uniform1f(this.uniforms.round_, pixels > 2.5 ? 1 : 0);
    gl.drawArrays(gl.POINTS, 0, Math.min(most, this.count));
    if (this.top.length) gl.drawElements(gl.POINTS, this.top.length, gl.UNSIGNED_INT, 0);
  }

  // Wait until everything is drawn: for measuring alone.
  finish(): void {
    this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4));
  }

  private pairs(places: Float32Array): Float32Array {
    const ordered = new Float32Array(2 * this.count);
    for (let place = 0; place < this.count; place++) {
      ordered[2 * place] = places[2 * this.order[place]];
      ordered[2 * place + 1] = places[2 * this.order[place] + 1];
    }
    return ordered;
  }

  private upload(name: string, data: AllowSharedBufferSource): void {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, data, this.gl.DYNAMIC_DRAW);
  }
}

function compile(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram()!;
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]] as const) {
    const shader = gl.createShader(kind)!;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? "the map's program");
  return program;
}

// The same order every time: xorshift, seeded.
function shuffled(count: number): Uint32Array {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  let state = 0x9e3779b9;
  for (let i = count - 1; i > 0; i--) {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    const j = (state >>> 0) % (i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  return order;
}
