// Words of docs/rnic.md that more than one module of the RNIC speaks.
package es_rnic_pkg;
  // Opcodes of segments (docs/rnic.md, 7).
  localparam logic [3:0] Write = 4'd0;
  localparam logic [3:0] ReadRequest = 4'd1;
  localparam logic [3:0] ReadResponse = 4'd2;
  localparam logic [3:0] Send = 4'd3;
  localparam logic [3:0] SendInvalidate = 4'd4;
  localparam logic [3:0] SendSolicited = 4'd5;
  localparam logic [3:0] SendSolicitedInvalidate = 4'd6;
  localparam logic [3:0] Terminate = 4'd7;
  localparam logic [3:0] Synchronise = 4'd12;
  localparam logic [3:0] Acknowledge = 4'd13;

  // Opcodes of send WQEs (4).
  localparam logic [7:0] WqeWrite = 8'd0;
  localparam logic [7:0] WqeSend = 8'd2;
  localparam logic [7:0] WqeSendInvalidate = 8'd4;
  localparam logic [7:0] WqeRead = 8'd5;
  localparam logic [7:0] WqeNothing = 8'd10;

  // States of a QP (14).
  localparam logic [3:0] Reset = 4'd0;
  localparam logic [3:0] Init = 4'd1;
  localparam logic [3:0] Rtr = 4'd2;
  localparam logic [3:0] Rts = 4'd3;
  localparam logic [3:0] Sqd = 4'd4;
  localparam logic [3:0] Error = 4'd6;

  // Rights of an STag (3), bits of its access.
  localparam logic [4:0] LocalRead = 5'b00000;
  localparam logic [4:0] LocalWrite = 5'b00001;
  localparam logic [4:0] RemoteRead = 5'b00010;
  localparam logic [4:0] RemoteWrite = 5'b00100;

  // What a look-up says (6), in the order of its checks.
  localparam logic [2:0] Fine = 3'd0;
  localparam logic [2:0] InvalidStag = 3'd1;
  localparam logic [2:0] NotAssociated = 3'd2;
  localparam logic [2:0] NoAccess = 3'd3;
  localparam logic [2:0] Wrap = 3'd4;
  localparam logic [2:0] Bounds = 3'd5;

  // An SGE as it lies in a WQE.
  typedef struct packed {
    logic [31:0] length;
    logic [31:0] stag;
    logic [63:0] to;
  } sge_t;

  // The first 64 bytes of a QP context as they lie in the table.
  typedef struct packed {
    logic [31:0] question_us;
    logic [31:0] q_key;
    logic [31:0] first_expected;
    logic [31:0] first_sent;
    logic [31:0] rnr_wait_us;
    logic [20:0] reserved1;
    logic [2:0]  rights;          // 0 write, 1 read, 2 atomics
    logic [1:0]  reserved0;
    logic [2:0]  qp_retries;
    logic [2:0]  rnr_retries;
    logic [7:0]  ord;
    logic [7:0]  ird;
    logic [15:0] stream;
    logic [15:0] peer_qp;
    logic [15:0] peer;
    logic [63:0] rq_address;
    logic [63:0] sq_address;
    logic [7:0]  rq_log2;
    logic [7:0]  sq_log2;
    logic [15:0] srq;
    logic [15:0] rq_cq;
    logic [15:0] sq_cq;
    logic [15:0] owner;
    logic [15:0] pd;
    logic [15:0] number;
    logic [7:0]  reserved2;
    logic        uses_srq;
    logic        signal_all;
    logic [1:0]  service;
    logic [3:0]  state;
  } context_t;

  // What the Send Module is asked to send: one message, cut into segments if it has data from memory; or one segment with a body of its own.
  typedef struct packed {
    logic         to_memory_rights;  // 0: data of our own (local read), 1: of a Read by the peer (remote read)
    logic [15:0]  pd;
    sge_t         sge1;
    sge_t         sge0;
    logic [415:0] body;              // byte 0 in bits 7:0
    logic [5:0]   body_bytes;        // 0: data come from the SGEs
    logic [8:0]   tail_bytes;        // behind the body, out of rows of 64 bytes beside the jobs; all of it in one segment
    logic [31:0]  length;            // of the message, if data come from the SGEs
    logic [63:0]  to;                // tagged. Untagged: MSN, MO
    logic [31:0]  stag;              // tagged. Untagged: ULP field
    logic [31:0]  qn;
    logic         untagged;
    logic [3:0]   opcode;
    logic [15:0]  qp;                // at the peer
    logic [15:0]  peer;
    logic [15:0]  stream;
  } job_t;

  // The first bytes of a segment that came, byte 0 in bits 7:0, its length and its peer.
  typedef struct packed {
    logic [383:0] bytes;
    logic [15:0]  length;
    logic [15:0]  peer;
  } head_t;

  // The fields of a head (7).
  typedef struct packed {
    logic [15:0] number;        // QP that it is for
    logic        untagged;
    logic        last;
    logic [1:0]  dv;
    logic [1:0]  rv;
    logic [3:0]  opcode;
    logic [31:0] stag;          // untagged: ULP field
    logic [63:0] to;
    logic [31:0] qn;
    logic [31:0] msn;
    logic [31:0] mo;
    logic [31:0] sink_stag;     // of a Read Request, from here on
    logic [63:0] sink_to;
    logic [31:0] read_length;
    logic [31:0] read_stag;
    logic [63:0] read_to;
    logic [15:0] header_bytes;
    logic [15:0] data_bytes;
  } fields_t;

  // What the Receive Module knows of a QP.
  typedef struct packed {
    logic [31:0] expected;    // number of the next request message
    logic [31:0] msn0;
    logic [31:0] msn1;
    logic [31:0] offset;      // in the Send under way
    logic        begun;       // Synchronise (restart) has come
    logic        refused;     // not ready was said, and nothing begun since
    logic        writing;     // a Write is under way
    logic        has_wqe;     // a receive WQE is under way
    logic [31:0] room;        // its bytes
    logic        may_fetch;   // one can be read
    logic [7:0]  accepted;    // Reads of the peer that are not answered
    logic        sink_any;    // a Read of ours is not answered; of the oldest:
    logic [31:0] sink_stag;
    logic [31:0] sink_left;
    logic [31:0] sink_place;
  } known_t;

  // What is to be done with a segment.
  typedef enum logic [3:0] {
    Forget,    // drop it, that is all
    Fault,     // Terminate, ERROR
    Answer,    // an answer, and drop it
    Taken,     // nothing to place
    Put,       // data to be placed
    Fetching,  // a receive WQE first
    Ours,      // an answer to us that does not fit
    Absent     // the peer says that a QP of its own is not there
  } verdict_t;

  // Reasons of a drop, in the order of their counters (15).
  localparam logic [3:0] Truncated = 4'd1;
  localparam logic [3:0] NoQp = 4'd2;
  localparam logic [3:0] NotReady = 4'd3;
  localparam logic [3:0] Malformed = 4'd4;
  localparam logic [3:0] Foreign = 4'd5;
  localparam logic [3:0] Denied = 4'd6;
  localparam logic [3:0] Sequence = 4'd7;
  localparam logic [3:0] Answers = 4'd8;
  localparam logic [3:0] TooLong = 4'd9;
  localparam logic [3:0] Irrq = 4'd10;
  localparam logic [3:0] Acknowledges = 4'd14;

  // A flag of PUSH or PULL (12): 8 bytes that are stored when it is done.
  typedef struct packed {
    logic [63:0] value;
    logic [63:0] to;
    logic [31:0] stag;
  } flag_t;

  // The send WQE that is next, as far as it has come.
  typedef struct packed {
    logic [511:0] block;    // the first
    logic [15:0]  slot;
    logic         valid;    // it can be worked on
    logic         begins;   // the word that came, and those before, are of it, but it is not valid
    logic         cut;      // its blocks are more than may be, or were handed over: what is behind it is not read
    logic         is_void;  // its QP went to RESET since
  } wqe_t;

  // Blocks of a send WQE: 32 bytes of inline data in the first, 64 in each further one, and a flag block.
  localparam int WqeBlocks = 9;
  localparam int InlineBytes = 480;

  // What takes effect when all data placed before it are in memory.
  typedef struct packed {
    logic [63:0] source_to;    // of a Read Request
    logic [31:0] source_stag;
    logic [31:0] length;
    logic [63:0] sink_to;
    logic [31:0] sink_stag;
    logic [63:0] wr_id;        // of a receive WQE
    logic [31:0] bytes;
    logic [31:0] immediate;
    logic [7:0]  status;
    logic        invalidated;
    logic        solicited;
    logic [31:0] msn;          // number of the next request message expected
    logic        acknowledge;
    logic        complete;     // a receive WQE
    logic        read;         // a Read Request was accepted
    logic        answer;       // a Read of ours has all its data
    logic [15:0] slot;
  } token_t;

  // Bytes in the order of the wire: the most significant one comes first.
  function automatic logic [15:0] be16(input logic [15:0] x);
    return {x[7:0], x[15:8]};
  endfunction

  function automatic logic [31:0] be32(input logic [31:0] x);
    return {be16(x[15:0]), be16(x[31:16])};
  endfunction

  function automatic logic [63:0] be64(input logic [63:0] x);
    return {be32(x[31:0]), be32(x[63:32])};
  endfunction

  function automatic fields_t fields(input head_t head);
    fields_t f;
    f.number = be16(head.bytes[15:0]);
    f.untagged = !head.bytes[23];
    f.last = head.bytes[22];
    f.dv = head.bytes[17:16];
    f.rv = head.bytes[31:30];
    f.opcode = head.bytes[27:24];
    f.stag = be32(head.bytes[63:32]);
    f.to = be64(head.bytes[127:64]);
    f.qn = be32(head.bytes[95:64]);
    f.msn = be32(head.bytes[127:96]);
    f.mo = be32(head.bytes[159:128]);
    f.sink_stag = be32(head.bytes[191:160]);
    f.sink_to = be64(head.bytes[255:192]);
    f.read_length = be32(head.bytes[287:256]);
    f.read_stag = be32(head.bytes[319:288]);
    f.read_to = be64(head.bytes[383:320]);
    f.header_bytes = f.untagged ? 16'd20 : 16'd16;
    f.data_bytes = head.length - f.header_bytes;
    return f;
  endfunction

  // The cause that a Terminate tells (15) for what a look-up says: of a tagged segment, of a Read Request.
  function automatic logic [15:0] tagged_cause(input logic [2:0] found_cause);
    case (found_cause)
      InvalidStag: return 16'h1100;
      NotAssociated: return 16'h1102;
      NoAccess: return 16'h0102;
      Wrap: return 16'h1103;
      default: return 16'h1101;
    endcase
  endfunction

  function automatic logic [15:0] read_cause(input logic [2:0] found_cause);
    case (found_cause)
      InvalidStag: return 16'h0100;
      NotAssociated: return 16'h0103;
      NoAccess: return 16'h0102;
      Wrap: return 16'h0104;
      default: return 16'h0101;
    endcase
  endfunction

  // The status that a Terminate of this cause gives the requester.
  function automatic logic [7:0] status_of(input logic [15:0] cause);
    if (cause[15:8] == 8'h00) return 8'd11;
    if (cause[15:8] == 8'h01 || cause == 16'h0209 || (cause[15:8] == 8'h11 && cause[7:0] < 8'd4)) return 8'd10;
    return 8'd9;
  endfunction

  // A DDP header with its QP as it lies on the wire, byte 0 in bits 7:0: 16 bytes tagged, 20 untagged (7).
  function automatic logic [159:0] ddp_header(input logic [15:0] qp, input logic untagged, input logic last, input logic [3:0] opcode,
                                              input logic [31:0] stag, input logic [31:0] qn, input logic [63:0] to);
    logic [15:0] control;
    control = {!untagged, last, 4'b0, 2'd1, 2'd1, 2'b0, opcode};
    return untagged ? {be32(
        to[31:0]
    ), be32(
        to[63:32]
    ), be32(
        qn
    ), be32(
        stag
    ), be16(
        control
    ), be16(
        qp
    )} : {32'b0, be64(
        to
    ), be32(
        stag
    ), be16(
        control
    ), be16(
        qp
    )};
  endfunction
endpackage
