var gt=`.attnlab-view {
  --av-paper: #fefefd; --av-panel: #f6f7f9; --av-ink: #1f2329; --av-quiet: #57606b; --av-line: #c3cad2;
  --av-accent: #0072b2; --av-mark: #e4eef6;
  --av-series-0: #0072b2; --av-series-1: #d55e00; --av-series-2: #009e73; --av-series-3: #b0568f;
  --av-series-4: #707070; --av-series-5: #8a5a00; --av-hatch: #9a9ea3; --av-hatch-ground: #f2f3f4;
  color-scheme: light;
  box-sizing: border-box; width: 100%; padding: 16px; border-radius: 8px; border: 1px solid var(--av-line);
  background: var(--av-paper); color: var(--av-ink);
  font: 13px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
.attnlab-view[data-theme="dark"] {
  --av-paper: #16181d; --av-panel: #20242b; --av-ink: #e6edf2; --av-quiet: #a3adb8; --av-line: #454d58;
  --av-accent: #56b4e9; --av-mark: #26384a;
  --av-series-0: #56b4e9; --av-series-1: #f08a3c; --av-series-2: #2ec49a; --av-series-3: #e39cc6;
  --av-series-4: #a8a8a8; --av-series-5: #d9a441; --av-hatch: #6d757f; --av-hatch-ground: #20242b;
  color-scheme: dark;
}
.attnlab-view *, .attnlab-view *::before { box-sizing: border-box; }
.attnlab-view [hidden] { display: none !important; }
.attnlab-view h3 { margin: 0; font-size: 14px; font-weight: 600; line-height: 28px; color: var(--av-ink); }
.attnlab-view p { margin: 0; }
.av-summary { font-weight: 600; }
.av-quiet { color: var(--av-quiet); }
.av-top { display: flex; flex-direction: column; gap: 10px; margin-bottom: 16px; }
.av-controls { display: flex; flex-wrap: wrap; gap: 10px 20px; align-items: center; }
.av-row { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; min-height: 28px; }
.av-head-row { justify-content: space-between; }
.av-field, .av-toggle { display: inline-flex; align-items: center; gap: 8px; color: var(--av-ink); }
.av-toggle { gap: 6px; cursor: pointer; }
.av-field input[type="range"] { width: 110px; margin: 0; accent-color: var(--av-accent); }
.av-toggle input { margin: 0; width: 15px; height: 15px; accent-color: var(--av-accent); }
.av-value { min-width: 3.2em; font-variant-numeric: tabular-nums; color: var(--av-quiet); }
.attnlab-view select, .av-number, .av-button {
  font: inherit; height: 28px; padding: 0 8px; border: 1px solid var(--av-line); border-radius: 5px;
  background: var(--av-panel); color: var(--av-ink);
}
.av-number { width: 60px; }
.av-button { min-width: 28px; cursor: pointer; }
.av-button:hover:not(:disabled) { background: var(--av-mark); }
.av-button:disabled { opacity: 0.5; cursor: default; }
.av-save { margin-left: auto; }
.av-status {
  padding: 6px 12px; border-left: 4px solid var(--av-accent); border-radius: 4px; background: var(--av-mark);
}
.av-panels { display: grid; gap: 20px 28px; grid-template-columns: minmax(0, 1fr); align-items: start; }
[data-wide="two"] .av-panels { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
[data-wide="two"] .av-panel-lines { grid-column: 1 / -1; grid-row: 2; }
[data-wide="three"] .av-panels { grid-template-columns: repeat(3, minmax(0, 1fr)); }
.av-panel { display: flex; flex-direction: column; gap: 8px; min-width: 0; }
.av-heads-frame { position: relative; margin: -4px; }
.av-heads { position: relative; display: grid; gap: 6px; max-height: 560px; overflow: auto; padding: 4px; justify-content: start; }
.av-head { position: relative; cursor: pointer; border-radius: 3px; line-height: 0; text-align: center; outline: 1px solid var(--av-line); }
.av-head-map { display: block; }
.av-head:hover { outline: 2px solid var(--av-quiet); }
.av-head[aria-selected="true"] { outline: 2px dashed var(--av-ink); outline-offset: 1px; }
.av-head.av-chosen { outline: 3px solid var(--av-accent); outline-offset: 1px; }
.av-head:not([data-line=""])[data-line]::before {
  content: attr(data-line); position: absolute; top: -5px; right: -5px; z-index: 1; padding: 0 5px;
  border-radius: 8px; background: var(--av-ink); color: var(--av-paper); font-size: 10px; line-height: 15px;
}
.av-head-name, .av-head-value { display: block; font-size: 11px; line-height: 15px; font-variant-numeric: tabular-nums; }
.av-head-name { padding-top: 2px; }
.av-head-value { color: var(--av-quiet); }
.av-head-label { font-size: 11px; text-align: center; color: var(--av-quiet); }
.av-layer-label { font-size: 11px; align-self: center; text-align: right; padding-right: 6px; color: var(--av-quiet); }
.attnlab-view :focus-visible { outline: 3px solid var(--av-accent); outline-offset: 2px; }
.av-head:focus-visible { box-shadow: 0 0 0 6px var(--av-mark); }
.av-canvas { position: absolute; inset: 0; pointer-events: none; }
.av-columns-title { display: flex; justify-content: space-between; color: var(--av-quiet); font-size: 12px; padding: 0 200px 0 0; }
.av-columns-title span { width: 148px; text-align: right; }
.av-columns-title span:last-child { text-align: left; width: 0; }
.av-scroll { position: relative; overflow-y: auto; overflow-x: hidden; max-height: 440px; }
.av-stage { position: sticky; top: 0; overflow: hidden; }
.av-column { position: absolute; top: 0; bottom: 0; }
.av-column-query { left: 0; }
.av-column-key { right: 0; }
.av-token {
  position: absolute; left: 0; right: 0; height: 22px; line-height: 22px; display: flex; gap: 6px; padding: 0 6px;
  border-radius: 4px; cursor: pointer; white-space: pre; overflow: hidden;
}
.av-column-query .av-token-weight { order: 1; margin-left: auto; }
.av-column-query .av-token-text { order: 2; min-width: 6em; text-align: right; }
.av-column-key .av-token-weight { margin-left: auto; }
.av-column-key .av-token-number { order: 3; min-width: 2.6em; text-align: right; }
.av-token-number { color: var(--av-quiet); font-size: 10px; font-variant-numeric: tabular-nums; }
.av-token-weight { font-variant-numeric: tabular-nums; font-weight: 600; }
.av-token:hover { background: var(--av-panel); }
.av-token.av-own { background: var(--av-mark); font-weight: 600; }
.av-token.av-hit { background: var(--av-panel); }
.av-token.av-dim { color: var(--av-quiet); }
.av-token[aria-selected="true"] { box-shadow: inset 0 0 0 2px var(--av-accent); font-weight: 600; }
.av-token:focus-visible { outline-offset: -3px; }
.av-legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 4px 0 0; padding: 0; list-style: none; }
.av-legend li { display: flex; align-items: center; gap: 8px; margin: 0; }
.av-hint { font-size: 12px; }
.av-readout { height: 38px; overflow: hidden; font-variant-numeric: tabular-nums; unicode-bidi: isolate; }
.av-matrix { position: relative; min-height: 130px; cursor: crosshair; border-radius: 4px; touch-action: pan-y; }
.av-zoom { gap: 6px; }
.av-scale { display: flex; gap: 8px 20px; align-items: flex-start; flex-wrap: wrap; font-size: 12px; }
.av-scale-bar canvas { display: block; border-radius: 2px; }
.av-ticks { display: flex; justify-content: space-between; color: var(--av-quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
.av-as-tables { margin-top: 16px; }
.av-as-tables summary { cursor: pointer; width: max-content; padding: 2px 4px; border-radius: 4px; }
.av-tables { display: flex; flex-wrap: wrap; gap: 20px; margin-top: 8px; align-items: flex-start; }
.av-table-frame { max-height: 320px; max-width: 100%; overflow: auto; border: 1px solid var(--av-line); border-radius: 5px; }
.attnlab-view table { border-collapse: collapse; font-size: 12px; font-variant-numeric: tabular-nums; margin: 0; color: inherit; }
.attnlab-view caption { text-align: left; padding: 8px 10px; font-weight: 600; caption-side: top; color: inherit; }
.attnlab-view th, .attnlab-view td { text-align: left; padding: 3px 10px; border-top: 1px solid var(--av-line); white-space: pre; background: none; }
.attnlab-view th { position: sticky; top: 0; background: var(--av-panel); font-weight: 600; }
.av-live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
@media (forced-colors: active) { .av-head, .av-token[aria-selected="true"] { forced-color-adjust: auto; } }
@media (prefers-reduced-motion: no-preference) { .av-canvas { transition: opacity 90ms; } }
`;var dt=`.cw-svg { display: block; width: 100%; height: auto; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.cw-svg text { fill: var(--av-ink); }
.cw-svg .cw-quiet { fill: var(--av-quiet); }
.cw-svg .cw-rim { fill: none; stroke: var(--av-line); }
.cw-svg .cw-axis { stroke: var(--av-line); fill: none; }
.cw-svg .cw-first { stroke: var(--av-series-0); fill: none; stroke-width: 2.2; }
.cw-svg .cw-second { stroke: var(--av-series-1); fill: none; stroke-width: 2.2; stroke-dasharray: 4 2; }
.cw-svg .cw-sum { stroke: var(--av-series-2); fill: none; stroke-width: 2; }
.cw-svg .cw-band { fill: var(--av-mark); stroke: none; }
.cw-svg .cw-tip-first { fill: var(--av-series-0); }
.cw-svg .cw-tip-second { fill: var(--av-series-1); }
.cw-svg .cw-dot { cursor: pointer; stroke-width: 1.6; }
.cw-svg .cw-dot-first { fill: var(--av-series-0); stroke: var(--av-series-0); }
.cw-svg .cw-dot-second { fill: var(--av-paper); stroke: var(--av-series-1); }
.cw-svg .cw-chosen { stroke: var(--av-ink); fill: none; stroke-width: 1.5; }
`;function st(t,e,r){let[a,n,i]=["amplitude","frequency","phase"].map(v=>t[v][e][r]);return{r:a,w:n,theta:i}}function rt({r:t,w:e,theta:r},a){let n=e*a+r;return[t*Math.cos(n),t*Math.sin(n)]}function lt(t,e,r){let[a,n]=rt(t,r),[i,v]=rt(e,r);return Math.hypot(a+i,n+v)}function xt(t,e){return Math.max(1e-6,...e.flatMap(r=>t.amplitude[r].map(Math.abs)))}function mt({w:t}){if(Math.abs(t)<1e-6)return"does not turn";let e=2*Math.PI/Math.abs(t);return e>9999?"one turn in more than 9,999 positions":`one turn in ${e.toFixed(1)} positions`}function C(t,e={},...r){let a=document.createElement(t);for(let[n,i]of Object.entries(e))n.startsWith("on")?a.addEventListener(n.slice(2),i):n==="class"?a.className=i:n==="text"?a.textContent=i:i===!0?a.setAttribute(n,""):i!==!1&&i!==null&&i!==void 0&&a.setAttribute(n,i);return a.append(...r.filter(n=>n!==null)),a}function wt(t,e,r=null){return C("label",{class:"av-field"},C("span",{text:t}),e,r)}function ot(t,e,r,a){let n=C("select",{"data-testid":e,onchange:()=>a(n.value)});for(let[i,v]of r)n.append(C("option",{value:i,text:v}));return{node:wt(t,n),select:n}}function yt(t,e,r,a){let n=C("input",{type:"range","data-testid":e,...r}),i=C("output",{class:"av-value"});return n.addEventListener("input",()=>a(Number(n.value))),{node:wt(t,n,i),input:n,output:i}}function bt(){let t=new Set;return function(r){t.size||requestAnimationFrame(()=>{let a=[...t];t.clear(),a.forEach(n=>n())}),t.add(r)}}var Pt=10;function zt(t,e,r){let a=0;return function n(){t.isConnected&&t.clientWidth?(a=0,r()):t.isConnected&&a<Pt&&(a+=1,setTimeout(()=>e(n),100))}}var T=Uint8Array,Y=Uint16Array,Gt=Int32Array,kt=new T([0,0,0,0,0,0,0,0,1,1,1,1,2,2,2,2,3,3,3,3,4,4,4,4,5,5,5,5,0,0,0,0]),Mt=new T([0,0,0,0,1,1,2,2,3,3,4,4,5,5,6,6,7,7,8,8,9,9,10,10,11,11,12,12,13,13,0,0]),Rt=new T([16,17,18,0,8,7,9,6,10,5,11,4,12,3,13,2,14,1,15]),At=function(t,e){for(var r=new Y(31),a=0;a<31;++a)r[a]=e+=1<<t[a-1];for(var n=new Gt(r[30]),a=1;a<30;++a)for(var i=r[a];i<r[a+1];++i)n[i]=i-r[a]<<5|a;return{b:r,r:n}},St=At(kt,2),$t=St.b,Nt=St.r;$t[28]=258,Nt[258]=28;var qt=At(Mt,0),Ht=qt.b,ue=qt.r,ut=new Y(32768);for(h=0;h<32768;++h)Z=(h&43690)>>1|(h&21845)<<1,Z=(Z&52428)>>2|(Z&13107)<<2,Z=(Z&61680)>>4|(Z&3855)<<4,ut[h]=((Z&65280)>>8|(Z&255)<<8)>>1;var Z,h,at=(function(t,e,r){for(var a=t.length,n=0,i=new Y(e);n<a;++n)t[n]&&++i[t[n]-1];var v=new Y(e);for(n=1;n<e;++n)v[n]=v[n-1]+i[n-1]<<1;var S;if(r){S=new Y(1<<e);var F=15-e;for(n=0;n<a;++n)if(t[n])for(var G=n<<4|t[n],D=e-t[n],s=v[t[n]-1]++<<D,g=s|(1<<D)-1;s<=g;++s)S[ut[s]>>F]=G}else for(S=new Y(a),n=0;n<a;++n)t[n]&&(S[n]=ut[v[t[n]-1]++]>>15-t[n]);return S}),it=new T(288);for(h=0;h<144;++h)it[h]=8;var h;for(h=144;h<256;++h)it[h]=9;var h;for(h=256;h<280;++h)it[h]=7;var h;for(h=280;h<288;++h)it[h]=8;var h,Ct=new T(32);for(h=0;h<32;++h)Ct[h]=5;var h;var Vt=at(it,9,1);var Wt=at(Ct,5,1),ft=function(t){for(var e=t[0],r=1;r<t.length;++r)t[r]>e&&(e=t[r]);return e},L=function(t,e,r){var a=e/8|0;return(t[a]|t[a+1]<<8)>>(e&7)&r},ct=function(t,e){var r=e/8|0;return(t[r]|t[r+1]<<8|t[r+2]<<16)>>(e&7)},Kt=function(t){return(t+7)/8|0},Jt=function(t,e,r){return(e==null||e<0)&&(e=0),(r==null||r>t.length)&&(r=t.length),new T(t.subarray(e,r))};var Yt=["unexpected EOF","invalid block type","invalid length/literal","invalid distance","stream finished","no stream handler",,"no callback","invalid UTF-8 data","extra field too long","date not in range 1980-2099","filename too long","stream finishing","invalid zip data"],j=function(t,e,r){var a=new Error(e||Yt[t]);if(a.code=t,Error.captureStackTrace&&Error.captureStackTrace(a,j),!r)throw a;return a},Qt=function(t,e,r,a){var n=t.length,i=a?a.length:0;if(!n||e.f&&!e.l)return r||new T(0);var v=!r,S=v||e.i!=2,F=e.i;v&&(r=new T(n*3));var G=function(ht){var vt=r.length;if(ht>vt){var pt=new T(Math.max(vt*2,ht));pt.set(r),r=pt}},D=e.f||0,s=e.p||0,g=e.b||0,U=e.l,H=e.d,l=e.m,R=e.n,Q=n*8;do{if(!U){D=L(t,s,1);var X=L(t,s+1,3);if(s+=3,X)if(X==1)U=Vt,H=Wt,l=9,R=5;else if(X==2){var et=L(t,s,31)+257,K=L(t,s+10,15)+4,V=et+L(t,s+5,31)+1;s+=14;for(var W=new T(V),o=new T(19),f=0;f<K;++f)o[Rt[f]]=L(t,s+f*3,7);s+=K*3;for(var x=ft(o),d=(1<<x)-1,b=at(o,x,1),f=0;f<V;){var A=b[L(t,s,d)];s+=A&15;var E=A>>4;if(E<16)W[f++]=E;else{var w=0,k=0;for(E==16?(k=3+L(t,s,3),s+=2,w=W[f-1]):E==17?(k=3+L(t,s,7),s+=3):E==18&&(k=11+L(t,s,127),s+=7);k--;)W[f++]=w}}var M=W.subarray(0,et),u=W.subarray(et);l=ft(M),R=ft(u),U=at(M,l,1),H=at(u,R,1)}else j(1);else{var E=Kt(s)+4,_=t[E-4]|t[E-3]<<8,tt=E+_;if(tt>n){F&&j(0);break}S&&G(g+_),r.set(t.subarray(E,tt),g),e.b=g+=_,e.p=s=tt*8,e.f=D;continue}if(s>Q){F&&j(0);break}}S&&G(g+131072);for(var z=(1<<l)-1,c=(1<<R)-1,y=s;;y=s){var w=U[ct(t,s)&z],m=w>>4;if(s+=w&15,s>Q){F&&j(0);break}if(w||j(2),m<256)r[g++]=m;else if(m==256){y=s,U=null;break}else{var B=m-254;if(m>264){var f=m-257,q=kt[f];B=L(t,s,(1<<q)-1)+$t[f],s+=q}var I=H[ct(t,s)&c],O=I>>4;I||j(3),s+=I&15;var u=Ht[O];if(O>3){var q=Mt[O];u+=ct(t,s)&(1<<q)-1,s+=q}if(s>Q){F&&j(0);break}S&&G(g+131072);var nt=g+B;if(g<u){var J=i-u,Bt=Math.min(u,nt);for(J+g<0&&j(3);g<Bt;++g)r[g]=a[J+g]}for(;g<nt;++g)r[g]=r[g-u]}}e.l=U,e.p=y,e.b=g,e.f=D,U&&(D=1,e.m=l,e.d=H,e.n=R)}while(!D);return g!=r.length&&v?Jt(r,0,g):r.subarray(0,g)};var Xt=new T(0);var _t=function(t,e){return((t[0]&15)!=8||t[0]>>4>7||(t[0]<<8|t[1])%31)&&j(6,"invalid zlib data"),(t[1]>>5&1)==+!e&&j(6,"invalid zlib data: "+(t[1]&32?"need":"unexpected")+" dictionary"),(t[1]>>3&4)+2};function Ft(t,e){return Qt(t.subarray(_t(t,e&&e.dictionary),-4),{i:2},e&&e.out,e&&e.dictionary)}var te=typeof TextDecoder<"u"&&new TextDecoder,ee=0;try{te.decode(Xt,{stream:!0}),ee=1}catch{}var ne="0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~",Et=new Uint8Array(128);[...ne].forEach((t,e)=>{Et[t.charCodeAt(0)]=e});function It(t){let e=(5-t.length%5)%5,r=(t.length+e)/5,a=new Uint8Array(r*4);for(let n=0;n<r;n+=1){let i=0;for(let v=n*5;v<n*5+5;v+=1)i=i*85+(v<t.length?Et[t.charCodeAt(v)]:84);a[n*4]=i/16777216,a[n*4+1]=i/65536&255,a[n*4+2]=i/256&255,a[n*4+3]=i&255}return a.subarray(0,a.length-e)}function re(t){let e=new Map(Object.entries(t).map(([n,i])=>[n,ae(i)])),r=new Map,a=n=>[...r.get(n)??[]].forEach(i=>i());return{get:n=>e.get(n),set(n,i){let v=typeof n=="string"?{[n]:i}:n;for(let[S,F]of Object.entries(v))e.get(S)!==F&&(e.set(S,F),a(`change:${S}`));a("change")},on(n,i){for(let v of n.split(" "))r.set(v,[...r.get(v)??[],i])},off(n,i){n?r.set(n,(r.get(n)??[]).filter(v=>v!==i)):r.clear()},save_changes(){},send(){}}}function ae(t){if(t===null||typeof t!="object"||!("deflated"in t))return t;let e=Ft(It(t.deflated));return new DataView(e.buffer,e.byteOffset,e.byteLength)}function Tt(t,e){let r=JSON.parse(e.querySelector("script[data-attnlab-state]").textContent),a=e.querySelector("[data-attnlab-widget]");t.render({model:re(r),el:a})}function Dt(){let{body:t,documentElement:e}=document,r=t.getAttribute("data-jp-theme-light");if(r!==null)return r==="false";if(t.classList.contains("vscode-dark")||t.classList.contains("vscode-high-contrast"))return!0;if(t.classList.contains("vscode-light"))return!1;let a=e.getAttribute("theme");return a!==null?a==="dark":window.matchMedia("(prefers-color-scheme: dark)").matches}function Ut(t){let e=new MutationObserver(t),r=["data-jp-theme-light","class","theme"];e.observe(document.body,{attributes:!0,attributeFilter:r}),e.observe(document.documentElement,{attributes:!0,attributeFilter:r});let a=window.matchMedia("(prefers-color-scheme: dark)");return a.addEventListener("change",t),()=>{e.disconnect(),a.removeEventListener("change",t)}}var Lt=["first","second","dimension","stage","positions"],[P,$,N]=[920,64,16],ie="http://www.w3.org/2000/svg";function p(t,e,r){let a=document.createElementNS(ie,t);for(let[n,i]of Object.entries(e))a.setAttribute(n,i);return r!==void 0&&(a.textContent=r),a}function jt({model:t,el:e}){let r=C("div",{class:"attnlab-view attnlab-waves",role:"group","aria-label":"Complex word explorer","data-lm-suppress-shortcuts":"true","data-testid":"complex-words"});r.addEventListener("focusin",({target:o})=>o.setAttribute("data-lm-suppress-shortcuts","true")),r.addEventListener("keydown",o=>o.stopPropagation());let a=t.get("words"),n=t.get("_waves"),i=(o,f)=>{t.set(o,f),t.save_changes()},v=a.map((o,f)=>[String(f),o]),S=ot("word","first",v,o=>i("first",Number(o))),F=ot("beside","second",[["-1","no other word"],...v],o=>i("second",Number(o))),G=Object.keys(n).map(o=>[o,o]),D=ot("frequencies","stage",G,o=>i("stage",o)),s=n[G[0][0]].amplitude[0].length-1,g=yt("dimension","dimension",{min:0,max:s,step:1},o=>i("dimension",o)),U=C("p",{class:"av-summary","data-testid":"summary","aria-live":"polite"}),H=C("p",{class:"av-quiet","data-testid":"said"}),l=p("svg",{class:"cw-svg",viewBox:`0 0 ${P} 520`,role:"img","data-testid":"drawing"});r.append(C("style",{text:gt+dt}),C("header",{class:"av-top"},U,C("div",{class:"av-controls"},S.node,F.node,g.node,D.node)),l,H),e.replaceChildren(r);let R=bt();function Q(){let[o,f,x,d]=[t.get("first"),t.get("second"),t.get("dimension"),t.get("positions")],b=n[t.get("stage")],A=f<0?[o]:[o,f];S.select.value=String(o),F.select.value=String(f),D.select.value=t.get("stage"),g.input.value=String(x),g.output.textContent=String(x);let w=A.map(k=>st(b,k,x));U.textContent=A.map((k,M)=>`\u201C${a[k]}\u201D: amplitude ${Math.abs(w[M].r).toFixed(2)}, ${mt(w[M])}`).join(" \xB7 "),l.replaceChildren(),X(b,A,w,x,d),E(w,d),_(b,A,x),l.setAttribute("aria-label",U.textContent),H.textContent=f<0?"Choose a second word to see what two words at one position add up to. Click a point to choose its dimension.":`Where the arrows agree the sum is long, where they oppose each other it is short. ${tt(w)}`,r.dataset.drawn=String(Number(r.dataset.drawn??0)+1)}function X(o,f,x,d,b){let A=(P-$-N)/b,w=Math.min(A/2-3,30),k=Math.max(...x.map(({r:M})=>Math.abs(M)),1e-6);l.append(p("text",{x:0,y:14},`Dimension ${d} at each position: the arrow turns by the same angle from one position to the next`));for(let M=0;M<b;M+=1){let[u,z]=[$+A*(M+.5),58];l.append(p("circle",{class:"cw-rim",cx:u,cy:z,r:w})),x.forEach((c,y)=>{let[m,B]=rt(c,M).map(I=>I/k*w),q=y?"second":"first";l.append(p("line",{class:`cw-${q}`,x1:u,y1:z,x2:u+m,y2:z-B,"data-arrow":`${y}-${M}`})),l.append(p("circle",{class:`cw-tip-${q}`,cx:u+m,cy:z-B,r:y?2.5:3.5}))}),l.append(p("text",{class:"cw-quiet",x:u,y:106,"text-anchor":"middle"},String(M)))}l.append(p("text",{class:"cw-quiet",x:0,y:106},"position"))}function E(o,f){let[x,d]=[146,120],b=o.map(({r:u})=>Math.abs(u)),A=b.reduce((u,z)=>u+z,0)||1,w=u=>$+(P-$-N)/f*(u+.5),k=u=>x+d-u/A*d,M=u=>Array.from({length:(f-1)*8+1},(z,c)=>`${c?"L":"M"}${w(c/8).toFixed(1)} ${k(u(c/8)).toFixed(1)}`).join("");if(o.length===2){let[u,z]=[Math.abs(b[0]-b[1]),A];l.append(p("text",{x:0,y:x-10},"Interference: the length of the sum of both words, between the difference and the sum of their amplitudes")),l.append(p("rect",{class:"cw-band",x:$,y:k(z),width:P-$-N,height:Math.max(1,k(u)-k(z))})),l.append(p("path",{class:"cw-sum",d:M(c=>lt(...o,c)),"data-testid":"sum"}));for(let c=0;c<f;c+=1)l.append(p("circle",{cx:w(c),cy:k(lt(...o,c)),r:3.5,fill:"var(--av-series-2)"}))}else{let u=z=>x+d/2-z/A*(d/2);l.append(p("text",{x:0,y:x-10},"Its real part (solid) and imaginary part (dashed) along the sentence: two waves")),l.append(p("line",{class:"cw-axis",x1:$,x2:P-N,y1:u(0),y2:u(0)}));for(let z of[0,1]){let c=Array.from({length:(f-1)*8+1},(y,m)=>`${m?"L":"M"}${w(m/8).toFixed(1)} ${u(rt(o[0],m/8)[z]).toFixed(1)}`).join("");l.append(p("path",{class:z?"cw-second":"cw-first",style:"stroke: var(--av-series-0)",d:c}))}}l.append(p("line",{class:"cw-axis",x1:$,x2:P-N,y1:x+d,y2:x+d})),l.append(p("text",{class:"cw-quiet",x:$-8,y:x+10,"text-anchor":"end"},A.toFixed(2))),l.append(p("text",{class:"cw-quiet",x:$-8,y:x+d,"text-anchor":"end"},o.length===2?"0":(-A).toFixed(2)))}function _(o,f,x){let[d,b]=[310,160],A=Object.values(n).flatMap(c=>f.flatMap(y=>c.frequency[y].map(Math.abs))),w=Math.max(1e-6,...A),k=Math.max(...Object.values(n).map(c=>xt(c,f))),M=c=>$+Math.sqrt(Math.abs(c)/w)*(P-$-N-10),u=c=>d+b-Math.abs(c)/k*b;l.append(p("text",{x:0,y:d-12},"All dimensions: how fast each turns, and how long its arrow is (click one)")),l.append(p("path",{class:"cw-axis",d:`M${$} ${d}V${d+b}H${P-N}`})),l.append(p("text",{class:"cw-quiet",x:$-8,y:d+10,"text-anchor":"end"},k.toFixed(2))),l.append(p("text",{class:"cw-quiet",x:$-8,y:d+b,"text-anchor":"end"},"0"));for(let c of[0,.25,.5,.75,1]){let y=w*c*c;l.append(p("text",{class:"cw-quiet",x:M(y),y:d+b+18,"text-anchor":c===1?"end":"middle"},y.toFixed(c&&y<.095?3:2)))}l.append(p("text",{class:"cw-quiet",x:P-N,y:d+b+38,"text-anchor":"end"},"frequency, radians per position (square-root scale)"));let z=p("text",{x:$,y:d+b+38});f.forEach((c,y)=>{let m=y?"var(--av-series-1)":"var(--av-series-0)";z.append(p("tspan",{style:`fill: ${m}; font-weight: 600`},`${y?"\u2003\u25C7":"\u25CF"} ${a[c]}`))}),l.append(z),f.forEach((c,y)=>{for(let m=0;m<=s;m+=1){let B=st(o,c,m),[q,I,O]=[M(B.w),u(B.r),y?5:4],nt={class:`cw-dot cw-dot-${y?"second":"first"}`,"data-point":`${y}-${m}`},J=y?p("path",{...nt,d:`M${q} ${I-O}L${q+O} ${I}L${q} ${I+O}L${q-O} ${I}Z`}):p("circle",{...nt,cx:q,cy:I,r:O});J.append(p("title",{},`dimension ${m}: frequency ${Math.abs(B.w).toFixed(3)}, amplitude ${Math.abs(B.r).toFixed(2)}`)),J.addEventListener("click",()=>i("dimension",m)),l.append(J),m===x&&l.append(p("circle",{class:"cw-chosen",cx:q,cy:I,r:9}))}})}function tt([o,f]){let x=Math.abs(o.w-f.w);if(x<1e-4)return"Here both turn equally fast, so the length of the sum stays the same.";let d=2*Math.PI/x;return`The pattern repeats after ${d>999?"more than 999":d.toFixed(1)} positions.`}let et=zt(r,R,Q),K=()=>R(et);function V(){let o=t.get("theme");r.dataset.theme=(o==="auto"?Dt():o==="dark")?"dark":"light",K()}Lt.forEach(o=>t.on(`change:${o}`,K)),t.on("change:theme",V);let W=Ut(V);return V(),()=>{W(),Lt.forEach(o=>t.off(`change:${o}`,K)),t.off("change:theme",V)}}var Ae={render:jt,page:t=>Tt({render:jt},t)};export{Ae as default};
