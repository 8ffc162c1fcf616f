"""Where Scalus 0.17.0 differs from cardano-ledger and a line of its own code can be changed: done
to its text before it is run.

Each mend names what is wrong, the text as it stands in the pinned file, and the text instead. A
text that is not there exactly once ends the start (another Scalus would have to be read again); the
file on disk stays as npm installed it.
"""

from __future__ import annotations

from contracts.devnet.parameters import EPOCH_LENGTH, PARAMETERS


def _long(value: int) -> str:
    """A 64-bit integer as the two signed halves in which compiled Scala holds it."""
    low, high = value & 0xFFFFFFFF, value >> 32
    return f"{low - 2**32 if low >= 2**31 else low},{high}"


_UNITS = f"{_long(int(PARAMETERS['max_tx_ex_mem']))},{_long(int(PARAMETERS['max_tx_ex_steps']))}"

MENDS = (
    (
        "metadata integers from 2^63 on, and below -2^63, are valid",
        "case 8:case 16:case 32:e=new Yjt((t=rn(t)).c,t.d);break;",
        "case 32:t=un(t);e=new Yjt(t.c,t.d);break;case 8:case 16:e=new Yjt((t=rn(t)).c,t.d);break;",
    ),
    (
        "a body may be a map of indefinite length",
        "var n=dn(t),e=n.c;n=n.d;for(var r=aCt().Cm(tDt()),i=Plt(fMt()),o=NEt()",
        (
            "var open=524288===tn(t),n=open?(t.Dc=0,R(-1,2147483647)):dn(t),e=n.c;n=n.d;"
            "for(var r=aCt().Cm(tDt()),i=Plt(fMt()),o=NEt()"
        ),
    ),
    (
        "and ends with a break",
        "k=0,j=0;;){var x=k;if(!(j===n?x>>>0<e>>>0:j<n))break;switch(x=en(t)){case 0:r=SG(",
        (
            "k=0,j=0;;){var x=k;if(open?mn(t):!(j===n?x>>>0<e>>>0:j<n))break;switch(x=en(t)){case"
            " 0:r=SG("
        ),
    ),
    (
        "so may a witness set",
        "YG.prototype.z=function(t){var n=dn(t),e=n.c,r=n.d;",
        (
            "YG.prototype.z=function(t){var"
            " open=524288===tn(t),n=open?(t.Dc=0,R(0,0)):dn(t),e=n.c,r=n.d;"
        ),
    ),
    (
        "and ends with a break",
        "e=QGt(R(e,r)),r=0;for(var f=e.ge;r<e.h();){switch(en(t)){case 0:n=SG(EG(),Q4()",
        (
            "e=QGt(R(e,r)),r=0;for(var f=e.ge;open?!mn(t):r<e.h();){switch(en(t)){case"
            " 0:n=SG(EG(),Q4()"
        ),
    ),
    (
        "so may an output, and one of the older kind an array of indefinite length",
        "KG.prototype.z=function(t){if(65536===tn(t)){",
        (
            "KG.prototype.z=function(t){var open=524288===tn(t);if(131072===tn(t)){C4(),t.Dc=0;"
            "var q=oH(uH(),t),v=rK(iK(),t),w=mn(t);t=(n=>(w||mn(t)||Bn(t,'BREAK'),n))"
            "(new gxt(q,v,w?NEt():new HEt(new iU(j9()).Gh(t))))}else if(65536===tn(t)){"
        ),
    ),
    (
        "the map's head",
        (
            '{262144===tn(t)||jn(t,"Expected Array or Map for TransactionOutput"),C4();var'
            " r=(e=dn(t)).c,i=e.d;"
        ),
        (
            '{open||262144===tn(t)||jn(t,"Expected Array or Map for TransactionOutput"),C4();'
            "var r=(e=open?(t.Dc=0,R(0,0)):dn(t)).c,i=e.d;"
        ),
    ),
    (
        "and its end",
        "i=0;for(var a=r.ge;i<r.h();){switch(en(t)){case 0:e=new HEt(oH(uH(),t));",
        "i=0;for(var a=r.ge;open?!mn(t):i<r.h();){switch(en(t)){case 0:e=new HEt(oH(uH(),t));",
    ),
    (
        "so may auxiliary data with scripts",
        "&&$n(t,new Uvt(259,0))){var e=(n=dn(t)).c,r=n.d;",
        "&&$n(t,new Uvt(259,0))){var open=524288===tn(t),e=(n=open?(t.Dc=0,R(0,0)):dn(t)).c,r=n.d;",
    ),
    (
        "and end with a break",
        (
            "for(var s=e.ge;r<e.h();){switch(en(t)){case 0:n=new"
            " HEt(In($F(),AK(),wU()).z(t));break;case 1:i=vF("
        ),
        (
            "for(var s=e.ge;open?!mn(t):r<e.h();){switch(en(t)){case 0:n=new"
            " HEt(In($F(),AK(),wU()).z(t));break;case 1:i=vF("
        ),
    ),
    (
        "an evaluation may use what a transaction may, not 2^63 units",
        "Md(new jU(e,(y9(),new xwt(-1,2147483647,-1,2147483647)),",
        f"Md(new jU(e,(y9(),new xwt({_UNITS})),",
    ),
    (
        "and is held to it",
        "(null===c?null===r:c===r)n=new RJ;else",
        "(null===c?null===r:c===r)n=new uat(t.N5a,!1);else",
    ),
    (
        (
            "the numbers of a pointer address stand with their highest part first, where they are"
            " written"
        ),
        (
            'function Tb(t,n,e){if(!(0<=e))throw _vt("requirement failed: Value must be'
            ' non-negative");'
        ),
        (
            'function Tb(t,n,e){if(!(0<=e))throw _vt("requirement failed: Value must be'
            ' non-negative");'
            "{var v=BigInt(e>>>0)<<32n|BigInt(n>>>0),b=[Number(v&127n)];"
            "for(v>>=7n;v;v>>=7n)b.unshift(Number(v&127n)|128);return new W(new Int8Array(b))}"
        ),
    ),
    (
        "and where they are read",
        (
            'function Fb(t,n,e){if(!(e<n.a.length))throw _vt("requirement failed: Start index out'
            ' of bounds");'
        ),
        (
            "function Fb(t,n,e){for(var v=0n,at=e;;){"
            'if(!(at<n.a.length))throw _vt("requirement failed: Start index out of bounds");'
            "var one=n.a[at++];v=v<<7n|BigInt(one&127);if(!(128&one))"
            "return Fgt(new Rgt,R(Number(v&4294967295n)|0,Number(v>>32n&4294967295n)|0),at-e)}"
        ),
    ),
    (
        "a pool that is registered pays no second deposit when it registers anew",
        "D5.prototype.xe=function(t,n,e){var r=_wt(e);",
        "D5.prototype.xe=function(t,n,e){var r=_wt(e),pools=n.Si.$A.HT.wk().Ee(n.Si.$A.GT.wk());",
    ),
    (
        "nor does one that stands twice in a transaction",
        "t instanceof WCt&&(t=(n=a.Sc)+o|0,n=(a.ad+u|0)",
        (
            "t instanceof WCt&&!pools.Aa(Kb(Wb(),t.vq,uU().XG))"
            "&&(pools=pools.Bf(Kb(Wb(),t.vq,uU().XG)),t=(n=a.Sc)+o|0,n=(a.ad+u|0)"
        ),
    ),
    (
        "a pool's last epoch is counted in epochs, not in slots",
        "o=t.$d,u=o.Xx;o=o.Wx,t=t.$d.Cs,V3();",
        f"o=t.$d,u=Math.floor((4294967296*o.Wx+(o.Xx>>>0))/{EPOCH_LENGTH});o=0,t=t.$d.Cs,V3();",
    ),
    (
        "whoever asks wants to know which script failed",
        "function xU(t,n,r,i,o,u,a){var s=",
        "function xU(t,n,r,i,o,u,a){globalThis.tallyAt=[n.ak.k(),n.al];var s=",
    ),
)


def mended(source: str) -> str:
    """The ledger's JavaScript with the mends. Raises ``ValueError`` if it is not the text that they
    were made for.
    """
    for why, before, after in MENDS:
        if source.count(before) != 1:
            raise ValueError(f"this Scalus is another than the one that was mended: {why}")
        source = source.replace(before, after)
    return source
