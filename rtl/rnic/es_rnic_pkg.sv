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

  // A flag of PUSH or PULL (12): 8 bytes that are stored when it is done.
  typedef struct packed {
    logic [63:0] value;
    logic [63:0] to;
    logic [31:0] stag;
  } flag_t;

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
