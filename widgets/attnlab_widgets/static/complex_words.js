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
`;var dt=`.cw-svg { display: block; width: 100%; height: 520px; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
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
`;function lt(t,e,r){let[a,n,i]=["amplitude","frequency","phase"].map(h=>t[h][e][r]);return{r:a,w:n,theta:i}}function nt({r:t,w:e,theta:r},a){let n=e*a+r;return[t*Math.cos(n),t*Math.sin(n)]}function ft(t,e,r){let[a,n]=nt(t,r),[i,h]=nt(e,r);return Math.hypot(a+i,n+h)}function xt(t,e){return Math.max(1e-6,...e.flatMap(r=>t.amplitude[r].map(Math.abs)))}function mt({w:t}){if(Math.abs(t)<1e-6)return"does not turn";let e=2*Math.PI/Math.abs(t);return e>9999?"one turn in more than 9,999 positions":`one turn in ${e.toFixed(1)} positions`}function E(t,e={},...r){let a=document.createElement(t);for(let[n,i]of Object.entries(e))n.startsWith("on")?a.addEventListener(n.slice(2),i):n==="class"?a.className=i:n==="text"?a.textContent=i:i===!0?a.setAttribute(n,""):i!==!1&&i!==null&&i!==void 0&&a.setAttribute(n,i);return a.append(...r.filter(n=>n!==null)),a}function wt(t,e,r=null){return E("label",{class:"av-field"},E("span",{text:t}),e,r)}function st(t,e,r,a){let n=E("select",{"data-testid":e,onchange:()=>a(n.value)});for(let[i,h]of r)n.append(E("option",{value:i,text:h}));return{node:wt(t,n),select:n}}function yt(t,e,r,a){let n=E("input",{type:"range","data-testid":e,...r}),i=E("output",{class:"av-value"});return n.addEventListener("input",()=>a(Number(n.value))),{node:wt(t,n,i),input:n,output:i}}function bt(){let t=new Set;return function(r){t.size||requestAnimationFrame(()=>{let a=[...t];t.clear(),a.forEach(n=>n())}),t.add(r)}}var Zt=10;function zt(t,e,r){let a=0;return function n(){t.isConnected&&t.clientWidth?(a=0,r()):t.isConnected&&a<Zt&&(a+=1,setTimeout(()=>e(n),100))}}var D=Uint8Array,Q=Uint16Array,Gt=Int32Array,kt=new D([0,0,0,0,0,0,0,0,1,1,1,1,2,2,2,2,3,3,3,3,4,4,4,4,5,5,5,5,0,0,0,0]),Mt=new D([0,0,0,0,1,1,2,2,3,3,4,4,5,5,6,6,7,7,8,8,9,9,10,10,11,11,12,12,13,13,0,0]),Pt=new D([16,17,18,0,8,7,9,6,10,5,11,4,12,3,13,2,14,1,15]),At=function(t,e){for(var r=new Q(31),a=0;a<31;++a)r[a]=e+=1<<t[a-1];for(var n=new Gt(r[30]),a=1;a<30;++a)for(var i=r[a];i<r[a+1];++i)n[i]=i-r[a]<<5|a;return{b:r,r:n}},St=At(kt,2),$t=St.b,Rt=St.r;$t[28]=258,Rt[258]=28;var qt=At(Mt,0),Nt=qt.b,he=qt.r,ut=new Q(32768);for(c=0;c<32768;++c)P=(c&43690)>>1|(c&21845)<<1,P=(P&52428)>>2|(P&13107)<<2,P=(P&61680)>>4|(P&3855)<<4,ut[c]=((P&65280)>>8|(P&255)<<8)>>1;var P,c,rt=(function(t,e,r){for(var a=t.length,n=0,i=new Q(e);n<a;++n)t[n]&&++i[t[n]-1];var h=new Q(e);for(n=1;n<e;++n)h[n]=h[n-1]+i[n-1]<<1;var S;if(r){S=new Q(1<<e);var I=15-e;for(n=0;n<a;++n)if(t[n])for(var R=n<<4|t[n],U=e-t[n],s=h[t[n]-1]++<<U,p=s|(1<<U)-1;s<=p;++s)S[ut[s]>>I]=R}else for(S=new Q(a),n=0;n<a;++n)t[n]&&(S[n]=ut[h[t[n]-1]++]>>15-t[n]);return S}),at=new D(288);for(c=0;c<144;++c)at[c]=8;var c;for(c=144;c<256;++c)at[c]=9;var c;for(c=256;c<280;++c)at[c]=7;var c;for(c=280;c<288;++c)at[c]=8;var c,Ct=new D(32);for(c=0;c<32;++c)Ct[c]=5;var c;var Ht=rt(at,9,1);var Wt=rt(Ct,5,1),ct=function(t){for(var e=t[0],r=1;r<t.length;++r)t[r]>e&&(e=t[r]);return e},B=function(t,e,r){var a=e/8|0;return(t[a]|t[a+1]<<8)>>(e&7)&r},ht=function(t,e){var r=e/8|0;return(t[r]|t[r+1]<<8|t[r+2]<<16)>>(e&7)},Vt=function(t){return(t+7)/8|0},Kt=function(t,e,r){return(e==null||e<0)&&(e=0),(r==null||r>t.length)&&(r=t.length),new D(t.subarray(e,r))};var Jt=["unexpected EOF","invalid block type","invalid length/literal","invalid distance","stream finished","no stream handler",,"no callback","invalid UTF-8 data","extra field too long","date not in range 1980-2099","filename too long","stream finishing","invalid zip data"],Z=function(t,e,r){var a=new Error(e||Jt[t]);if(a.code=t,Error.captureStackTrace&&Error.captureStackTrace(a,Z),!r)throw a;return a},Yt=function(t,e,r,a){var n=t.length,i=a?a.length:0;if(!n||e.f&&!e.l)return r||new D(0);var h=!r,S=h||e.i!=2,I=e.i;h&&(r=new D(n*3));var R=function(Y){var vt=r.length;if(Y>vt){var pt=new D(Math.max(vt*2,Y));pt.set(r),r=pt}},U=e.f||0,s=e.p||0,p=e.b||0,L=e.l,V=e.d,l=e.m,N=e.n,$=n*8;do{if(!L){U=B(t,s,1);var X=B(t,s+1,3);if(s+=3,X)if(X==1)L=Ht,V=Wt,l=9,N=5;else if(X==2){var et=B(t,s,31)+257,it=B(t,s+10,15)+4,K=et+B(t,s+5,31)+1;s+=14;for(var G=new D(K),J=new D(19),C=0;C<it;++C)J[Pt[C]]=B(t,s+C*3,7);s+=it*3;for(var o=ct(J),m=(1<<o)-1,x=rt(J,o,1),C=0;C<K;){var v=x[B(t,s,m)];s+=v&15;var T=v>>4;if(T<16)G[C++]=T;else{var g=0,k=0;for(T==16?(k=3+B(t,s,3),s+=2,g=G[C-1]):T==17?(k=3+B(t,s,7),s+=3):T==18&&(k=11+B(t,s,127),s+=7);k--;)G[C++]=g}}var M=G.subarray(0,et),w=G.subarray(et);l=ct(M),N=ct(w),L=rt(M,l,1),V=rt(w,N,1)}else Z(1);else{var T=Vt(s)+4,_=t[T-4]|t[T-3]<<8,tt=T+_;if(tt>n){I&&Z(0);break}S&&R(p+_),r.set(t.subarray(T,tt),p),e.b=p+=_,e.p=s=tt*8,e.f=U;continue}if(s>$){I&&Z(0);break}}S&&R(p+131072);for(var A=(1<<l)-1,d=(1<<N)-1,y=s;;y=s){var g=L[ht(t,s)&A],f=g>>4;if(s+=g&15,s>$){I&&Z(0);break}if(g||Z(2),f<256)r[p++]=f;else if(f==256){y=s,L=null;break}else{var z=f-254;if(f>264){var C=f-257,b=kt[C];z=B(t,s,(1<<b)-1)+$t[C],s+=b}var j=V[ht(t,s)&d],F=j>>4;j||Z(3),s+=j&15;var w=Nt[F];if(F>3){var b=Mt[F];w+=ht(t,s)&(1<<b)-1,s+=b}if(s>$){I&&Z(0);break}S&&R(p+131072);var O=p+z;if(p<w){var H=i-w,ot=Math.min(w,O);for(H+p<0&&Z(3);p<ot;++p)r[p]=a[H+p]}for(;p<O;++p)r[p]=r[p-w]}}e.l=L,e.p=y,e.b=p,e.f=U,L&&(U=1,e.m=l,e.d=V,e.n=N)}while(!U);return p!=r.length&&h?Kt(r,0,p):r.subarray(0,p)};var Qt=new D(0);var Xt=function(t,e){return((t[0]&15)!=8||t[0]>>4>7||(t[0]<<8|t[1])%31)&&Z(6,"invalid zlib data"),(t[1]>>5&1)==+!e&&Z(6,"invalid zlib data: "+(t[1]&32?"need":"unexpected")+" dictionary"),(t[1]>>3&4)+2};function Ft(t,e){return Yt(t.subarray(Xt(t,e&&e.dictionary),-4),{i:2},e&&e.out,e&&e.dictionary)}var _t=typeof TextDecoder<"u"&&new TextDecoder,te=0;try{_t.decode(Qt,{stream:!0}),te=1}catch{}var ee="0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~",Et=new Uint8Array(128);[...ee].forEach((t,e)=>{Et[t.charCodeAt(0)]=e});function It(t){let e=(5-t.length%5)%5,r=(t.length+e)/5,a=new Uint8Array(r*4);for(let n=0;n<r;n+=1){let i=0;for(let h=n*5;h<n*5+5;h+=1)i=i*85+(h<t.length?Et[t.charCodeAt(h)]:84);a[n*4]=i/16777216,a[n*4+1]=i/65536&255,a[n*4+2]=i/256&255,a[n*4+3]=i&255}return a.subarray(0,a.length-e)}function ne(t){let e=new Map(Object.entries(t).map(([n,i])=>[n,re(i)])),r=new Map,a=n=>[...r.get(n)??[]].forEach(i=>i());return{get:n=>e.get(n),set(n,i){let h=typeof n=="string"?{[n]:i}:n;for(let[S,I]of Object.entries(h))e.get(S)!==I&&(e.set(S,I),a(`change:${S}`));a("change")},on(n,i){for(let h of n.split(" "))r.set(h,[...r.get(h)??[],i])},off(n,i){n?r.set(n,(r.get(n)??[]).filter(h=>h!==i)):r.clear()},save_changes(){},send(){}}}function re(t){if(t===null||typeof t!="object"||!("deflated"in t))return t;let e=Ft(It(t.deflated));return new DataView(e.buffer,e.byteOffset,e.byteLength)}function Tt(t,e){let r=JSON.parse(e.querySelector("script[data-attnlab-state]").textContent),a=e.querySelector("[data-attnlab-widget]");t.render({model:ne(r),el:a})}function Dt(){let{body:t,documentElement:e}=document,r=t.getAttribute("data-jp-theme-light");if(r!==null)return r==="false";if(t.classList.contains("vscode-dark")||t.classList.contains("vscode-high-contrast"))return!0;if(t.classList.contains("vscode-light"))return!1;let a=e.getAttribute("theme");return a!==null?a==="dark":window.matchMedia("(prefers-color-scheme: dark)").matches}function Ut(t){let e=new MutationObserver(t),r=["data-jp-theme-light","class","theme"];e.observe(document.body,{attributes:!0,attributeFilter:r}),e.observe(document.documentElement,{attributes:!0,attributeFilter:r});let a=window.matchMedia("(prefers-color-scheme: dark)");return a.addEventListener("change",t),()=>{e.disconnect(),a.removeEventListener("change",t)}}var Lt=["first","second","dimension","stage","positions"],[q,W,ae]=[64,16,520],ie="http://www.w3.org/2000/svg";function u(t,e,r){let a=document.createElementNS(ie,t);for(let[n,i]of Object.entries(e))a.setAttribute(n,i);return r!==void 0&&(a.textContent=r),a}function jt({model:t,el:e}){let r=E("div",{class:"attnlab-view attnlab-waves",role:"group","aria-label":"Complex word explorer","data-lm-suppress-shortcuts":"true","data-testid":"complex-words"});r.addEventListener("focusin",({target:o})=>o.setAttribute("data-lm-suppress-shortcuts","true")),r.addEventListener("keydown",o=>o.stopPropagation());let a=t.get("words"),n=t.get("_waves"),i=(o,m)=>{t.set(o,m),t.save_changes()},h=a.map((o,m)=>[String(m),o]),S=st("word","first",h,o=>i("first",Number(o))),I=st("beside","second",[["-1","no other word"],...h],o=>i("second",Number(o))),R=Object.keys(n).map(o=>[o,o]),U=st("frequencies","stage",R,o=>i("stage",o)),s=n[R[0][0]].amplitude[0].length-1,p=yt("dimension","dimension",{min:0,max:s,step:1},o=>i("dimension",o)),L=E("p",{class:"av-summary","data-testid":"summary","aria-live":"polite"}),V=E("p",{class:"av-quiet","data-testid":"said"}),l=u("svg",{class:"cw-svg",role:"img","data-testid":"drawing"});r.append(E("style",{text:gt+dt}),E("header",{class:"av-top"},L,E("div",{class:"av-controls"},S.node,I.node,p.node,U.node)),l,V),e.replaceChildren(r);let N=bt(),$=920;function X(){let[o,m,x,v]=[t.get("first"),t.get("second"),t.get("dimension"),t.get("positions")],g=n[t.get("stage")],k=m<0?[o]:[o,m];S.select.value=String(o),I.select.value=String(m),U.select.value=t.get("stage"),p.input.value=String(x),p.output.textContent=String(x);let M=k.map(w=>lt(g,w,x));L.textContent=k.map((w,A)=>`\u201C${a[w]}\u201D: amplitude ${Math.abs(M[A].r).toFixed(2)}, ${mt(M[A])}`).join(" \xB7 "),$=Math.max(360,l.clientWidth||$),l.setAttribute("viewBox",`0 0 ${$} ${ae}`),l.replaceChildren(),T(g,k,M,x,v),_(M,v),tt(g,k,x),l.setAttribute("aria-label",L.textContent),V.textContent=m<0?"Choose a second word to see what two words at one position add up to. Click a point to choose its dimension.":`Where the arrows agree the sum is long, where they oppose each other it is short. ${et(M)}`,r.dataset.drawn=String(Number(r.dataset.drawn??0)+1)}function T(o,m,x,v,g){let k=($-q-W)/g,M=Math.min(k/2-3,30),w=Math.max(...x.map(({r:A})=>Math.abs(A)),1e-6);l.append(u("text",{x:0,y:14},`Dimension ${v} at each position: the arrow turns by the same angle from one position to the next`));for(let A=0;A<g;A+=1){let[d,y]=[q+k*(A+.5),58];l.append(u("circle",{class:"cw-rim",cx:d,cy:y,r:M})),x.forEach((f,z)=>{let[b,j]=nt(f,A).map(O=>O/w*M),F=z?"second":"first";l.append(u("line",{class:`cw-${F}`,x1:d,y1:y,x2:d+b,y2:y-j,"data-arrow":`${z}-${A}`})),l.append(u("circle",{class:`cw-tip-${F}`,cx:d+b,cy:y-j,r:z?2.5:3.5}))}),l.append(u("text",{class:"cw-quiet",x:d,y:106,"text-anchor":"middle"},String(A)))}l.append(u("text",{class:"cw-quiet",x:0,y:106},"position"))}function _(o,m){let[x,v]=[146,120],g=o.map(({r:d})=>Math.abs(d)),k=g.reduce((d,y)=>d+y,0)||1,M=d=>q+($-q-W)/m*(d+.5),w=d=>x+v-d/k*v,A=d=>Array.from({length:(m-1)*8+1},(y,f)=>`${f?"L":"M"}${M(f/8).toFixed(1)} ${w(d(f/8)).toFixed(1)}`).join("");if(o.length===2){let[d,y]=[Math.abs(g[0]-g[1]),k];l.append(u("text",{x:0,y:x-10},"Interference: the length of the sum of both words, between the difference and the sum of their amplitudes")),l.append(u("rect",{class:"cw-band",x:q,y:w(y),width:$-q-W,height:Math.max(1,w(d)-w(y))})),l.append(u("path",{class:"cw-sum",d:A(f=>ft(...o,f)),"data-testid":"sum"}));for(let f=0;f<m;f+=1)l.append(u("circle",{cx:M(f),cy:w(ft(...o,f)),r:3.5,fill:"var(--av-series-2)"}))}else{let d=y=>x+v/2-y/k*(v/2);l.append(u("text",{x:0,y:x-10},"Its real part (solid) and imaginary part (dashed) along the sentence: two waves")),l.append(u("line",{class:"cw-axis",x1:q,x2:$-W,y1:d(0),y2:d(0)}));for(let y of[0,1]){let f=Array.from({length:(m-1)*8+1},(z,b)=>`${b?"L":"M"}${M(b/8).toFixed(1)} ${d(nt(o[0],b/8)[y]).toFixed(1)}`).join("");l.append(u("path",{class:y?"cw-second":"cw-first",style:"stroke: var(--av-series-0)",d:f}))}}l.append(u("line",{class:"cw-axis",x1:q,x2:$-W,y1:x+v,y2:x+v})),l.append(u("text",{class:"cw-quiet",x:q-8,y:x+10,"text-anchor":"end"},k.toFixed(2))),l.append(u("text",{class:"cw-quiet",x:q-8,y:x+v,"text-anchor":"end"},o.length===2?"0":(-k).toFixed(2)))}function tt(o,m,x){let[v,g]=[310,160],k=Object.values(n).flatMap(f=>m.flatMap(z=>f.frequency[z].map(Math.abs))),M=Math.max(1e-6,...k),w=Math.max(...Object.values(n).map(f=>xt(f,m))),A=f=>q+Math.sqrt(Math.abs(f)/M)*($-q-W-10),d=f=>v+g-Math.abs(f)/w*g;l.append(u("text",{x:0,y:v-12},"All dimensions: how fast each turns, and how long its arrow is (click one)")),l.append(u("path",{class:"cw-axis",d:`M${q} ${v}V${v+g}H${$-W}`})),l.append(u("text",{class:"cw-quiet",x:q-8,y:v+10,"text-anchor":"end"},w.toFixed(2))),l.append(u("text",{class:"cw-quiet",x:q-8,y:v+g,"text-anchor":"end"},"0"));for(let f of[0,.25,.5,.75,1]){let z=M*f*f;l.append(u("text",{class:"cw-quiet",x:A(z),y:v+g+18,"text-anchor":f===1?"end":"middle"},z.toFixed(f&&z<.095?3:2)))}l.append(u("text",{class:"cw-quiet",x:$-W,y:v+g+38,"text-anchor":"end"},"frequency, radians per position (square-root scale)"));let y=u("text",{x:q,y:v+g+38});m.forEach((f,z)=>{let b=z?"var(--av-series-1)":"var(--av-series-0)";y.append(u("tspan",{style:`fill: ${b}; font-weight: 600`},`${z?"\u2003\u25C7":"\u25CF"} ${a[f]}`))}),l.append(y),m.forEach((f,z)=>{for(let b=0;b<=s;b+=1){let j=lt(o,f,b),[F,O,H]=[A(j.w),d(j.r),z?5:4],ot={class:`cw-dot cw-dot-${z?"second":"first"}`,"data-point":`${z}-${b}`},Y=z?u("path",{...ot,d:`M${F} ${O-H}L${F+H} ${O}L${F} ${O+H}L${F-H} ${O}Z`}):u("circle",{...ot,cx:F,cy:O,r:H});Y.append(u("title",{},`dimension ${b}: frequency ${Math.abs(j.w).toFixed(3)}, amplitude ${Math.abs(j.r).toFixed(2)}`)),Y.addEventListener("click",()=>i("dimension",b)),l.append(Y),b===x&&l.append(u("circle",{class:"cw-chosen",cx:F,cy:O,r:9}))}})}function et([o,m]){let x=Math.abs(o.w-m.w);if(x<1e-4)return"Here both turn equally fast, so the length of the sum stays the same.";let v=2*Math.PI/x;return`The pattern repeats after ${v>999?"more than 999":v.toFixed(1)} positions.`}let it=zt(r,N,X),K=()=>N(it);function G(){let o=t.get("theme");r.dataset.theme=(o==="auto"?Dt():o==="dark")?"dark":"light",K()}let J=new ResizeObserver(()=>l.clientWidth&&l.clientWidth!==$&&K());J.observe(r),Lt.forEach(o=>t.on(`change:${o}`,K)),t.on("change:theme",G);let C=Ut(G);return G(),()=>{C(),J.disconnect(),Lt.forEach(o=>t.off(`change:${o}`,K)),t.off("change:theme",G)}}var Ae={render:jt,page:t=>Tt({render:jt},t)};export{Ae as default};
